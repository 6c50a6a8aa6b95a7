"""Who is it? The checks that every request of a member passes before its generation is looked at (T-1)."""

from ottla.coordinator.group import Group
from ottla.protocol.errors import ErrorCode


def identity_error(group: Group, member_id: str, group_instance_id: str | None) -> ErrorCode | None:
    """None for a member of the group that owns the seat it names, if it names one (docs/semantics §7.1.3 d-f)."""
    if group_instance_id is not None:
        seated = group.static_members.get(group_instance_id)
        if seated is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if seated != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return None if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID

"""DescribeGroups and ListGroups (docs/semantics §10)."""

from collections.abc import Iterable
from typing import Final

from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.member import Member
from ottla.coordinator.classic.states import DEAD, STABLE
from ottla.coordinator.events import DescribeGroup, ListGroups
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.results import DescribedMember, DescribeResult, ListedGroup, ListResult
from ottla.protocol.errors import ErrorCode

GROUP_TYPE: Final = "classic"


def describe_group(context: GroupContext, event: DescribeGroup) -> None:
    group = context.groups.get(event.group_id)
    if group is None:
        context.reply(event.token, DescribeResult(ErrorCode.NONE, event.group_id, state=DEAD))
        return
    is_stable = group.state is STABLE
    result = DescribeResult(
        error=ErrorCode.NONE,
        group_id=group.group_id,
        exists=group.state is not DEAD,
        state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if is_stable else "",
        generation=group.generation,
        leader_id=group.leader_id,
        members=tuple(_describe(member, group.protocol_name, is_stable) for member in group.members.values()),
    )
    context.reply(event.token, result)


def _describe(member: Member, protocol_name: str | None, is_stable: bool) -> DescribedMember:
    """Outside of Stable, metadata belongs to no generation and is left out. What a member was last assigned it may
    still hold, until a rebalance is given up half-way."""
    return DescribedMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        metadata=member.metadata_for(protocol_name) if is_stable else b"",
        assignment=member.assignment,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=member.protocol_names,
    )


def list_groups(context: GroupContext, event: ListGroups) -> None:
    """Filters name states and types in any letter case; unknown names match nothing."""
    states = {state.casefold() for state in event.states}
    types = {group_type.casefold() for group_type in event.types}
    groups: Iterable[ClassicGroup] = context.groups.values() if not types or GROUP_TYPE in types else ()
    listed = tuple(
        ListedGroup(group.group_id, group.protocol_type or "", group.state, GROUP_TYPE)
        for group in groups
        if not states or group.state.casefold() in states
    )
    context.reply(event.token, ListResult(ErrorCode.NONE, listed))

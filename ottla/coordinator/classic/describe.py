"""DescribeGroups and ListGroups (docs/semantics §10)."""

from collections.abc import Iterator
from typing import Final

from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.member import Member
from ottla.coordinator.classic.states import DEAD, STABLE
from ottla.coordinator.events import DescribeGroup, ListGroups
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.results import DescribedMember, DescribeResult, ListedGroup, ListResult
from ottla.protocol.errors import ErrorCode

GROUP_TYPE: Final = "classic"
GROUPS_PER_SLICE: Final = 1024
"""Of a list, in which each takes less than a microsecond."""


def describe_group(context: GroupContext, event: DescribeGroup) -> None:
    group = context.groups.get(event.group_id)
    if group is None:
        context.reply(event.token, DescribeResult(ErrorCode.NONE, event.group_id, state=DEAD))
        return
    context.run(_describe_members(context, group, event.token))


def _describe_members(context: GroupContext, group: ClassicGroup, token: int) -> Iterator[None]:
    is_stable = group.state is STABLE
    members: list[DescribedMember] = []
    for number, member in enumerate(group.members.values(), 1):
        members.append(_describe(member, group.protocol_name, is_stable))
        if not number % context.members_per_slice:
            yield
    result = DescribeResult(
        error=ErrorCode.NONE,
        group_id=group.group_id,
        exists=group.state is not DEAD,
        state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if is_stable else "",
        generation=group.generation,
        leader_id=group.leader_id,
        members=tuple(members),
    )
    context.reply(token, result)


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
    context.run(_list_each(context, event))


def _list_each(context: GroupContext, event: ListGroups) -> Iterator[None]:
    states = {state.casefold() for state in event.states}
    types = {group_type.casefold() for group_type in event.types}
    listed: list[ListedGroup] = []
    groups = context.groups.values() if not types or GROUP_TYPE in types else ()
    for number, group in enumerate(groups, 1):
        if not states or group.state.casefold() in states:
            listed.append(ListedGroup(group.group_id, group.protocol_type or "", group.state, GROUP_TYPE))
        if not number % GROUPS_PER_SLICE:
            yield
    context.reply(event.token, ListResult(ErrorCode.NONE, tuple(listed)))

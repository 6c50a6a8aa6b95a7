"""DescribeGroups: state and members of groups (§10.1)."""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.runtime import in_slices, now_or_later
from ottla.broker.server.request_context import GROUP_OPERATIONS, NOT_ASKED, RequestContext, check_repetitions
from ottla.coordinator.events import DescribeGroup
from ottla.coordinator.results import DescribedMember, DescribeResult
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

# Before, an unknown group is a dead one (KIP-1043).
_GROUP_ID_NOT_FOUND_FROM = 6


def handle(
    groups: GroupCoordinator, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse | None:
    check_repetitions("group", request.groups, len(request.groups))
    version = context.api_version
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED

    def respond(results: list[DescribeResult]) -> Any:
        size = len(results) + sum(len(result.members) for result in results)
        return now_or_later(_response(results, version, operations), size)

    events = (DescribeGroup(groups.new_token(), group_id) for group_id in request.groups)
    return groups.ask_each(context, events, len(request.groups), respond)


async def _response(results: list[DescribeResult], version: int, operations: int) -> DescribeGroupsResponse:
    members = iter(await in_slices(_member, (member for result in results for member in result.members)))
    return DescribeGroupsResponse(groups=await in_slices(partial(_group, members, version, operations), results))


def _group(
    members: Iterator[DescribedGroupMember], version: int, operations: int, result: DescribeResult
) -> DescribedGroup:
    """`members` begin with those of the group."""
    error, message = result.error, None
    if not error and not result.exists and version >= _GROUP_ID_NOT_FOUND_FROM:
        error, message = ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {result.group_id}"
        operations = NOT_ASKED
    return DescribedGroup(
        error_code=int(error),
        error_message=message,
        group_id=result.group_id,
        group_state=result.state,
        protocol_type=result.protocol_type,
        protocol_data=result.protocol_name,
        members=list(islice(members, len(result.members))),
        authorized_operations=operations,
    )


def _member(member: DescribedMember) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata,
        member_assignment=member.assignment,
    )

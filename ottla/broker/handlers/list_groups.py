"""ListGroups: the groups this broker coordinates (§10.2)."""

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.runtime import in_slices, now_or_later
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.results import ListedGroup as Listed
from ottla.coordinator.results import ListResult
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(groups: GroupCoordinator, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse | None:
    return groups.list_groups(
        context,
        request.states_filter,
        request.types_filter,
        lambda result: now_or_later(_response(result), len(result.groups)),
    )


async def _response(result: ListResult) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=int(result.error), groups=await in_slices(_listed, result.groups))


def _listed(group: Listed) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.state,
        group_type=group.group_type,
    )

"""ListGroups: the groups this broker coordinates (§10.2)."""

from ottla.broker.coordinators.group_coordinator import GroupService
from ottla.broker.server.deferred_response import Answer
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.results import ListResult
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(groups: GroupService, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse | None:
    answer = Answer(context)

    def deliver(result: ListResult) -> None:
        answer.give(
            ListGroupsResponse(
                error_code=int(result.error),
                groups=[
                    ListedGroup(
                        group_id=group.group_id,
                        protocol_type=group.protocol_type,
                        group_state=group.state,
                        group_type=group.group_type,
                    )
                    for group in result.groups
                ],
            )
        )

    groups.list_groups(request.states_filter, request.types_filter, deliver)
    return answer.now_or_parked()

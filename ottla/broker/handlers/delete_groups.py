"""DeleteGroups: empty groups go, with their offsets (§10.3)."""

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.events import DeleteGroup
from ottla.coordinator.results import DeleteResult
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(
    groups: GroupCoordinator, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse | None:
    group_ids = list(dict.fromkeys(request.groups_names))

    def respond(results: list[DeleteResult]) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id=group_id, error_code=int(result.error))
                for group_id, result in zip(group_ids, results, strict=True)
            ]
        )

    events = (DeleteGroup(groups.new_token(), group_id) for group_id in group_ids)
    return groups.ask_each(context, events, len(group_ids), respond)

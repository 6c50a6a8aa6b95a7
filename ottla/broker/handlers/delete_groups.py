"""DeleteGroups: empty groups go, with their offsets (§10.3)."""

from collections.abc import Callable

from ottla.broker.coordinators.group_coordinator import GroupService
from ottla.broker.server.deferred_response import Answer, Gathering
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.events import DeleteGroup
from ottla.coordinator.results import DeleteResult
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(groups: GroupService, context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse | None:
    answer = Answer(context)
    tokens: list[int] = []
    group_ids = list(dict.fromkeys(request.groups_names))

    def done(results: list[DeleteResult]) -> None:
        answer.give(
            DeleteGroupsResponse(
                results=[
                    DeletableGroupResult(group_id=group_id, error_code=int(result.error))
                    for group_id, result in zip(group_ids, results, strict=True)
                ]
            )
        )

    gathering = Gathering(len(group_ids), done)
    for index, group_id in enumerate(group_ids):
        tokens.append(groups.ask(_event_of(group_id), _putter(gathering, index)))
    return answer.now_or_parked(lambda: groups.forget(*tokens))


def _event_of(group_id: str) -> Callable[[int], DeleteGroup]:
    return lambda token: DeleteGroup(token, group_id)


def _putter(gathering: Gathering, index: int) -> Callable[[DeleteResult], None]:
    return lambda result: gathering.put(index, result)

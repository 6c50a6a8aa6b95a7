"""Heartbeat: a member is alive, and learns whether it has to rejoin (§7.4)."""

from ottla.broker.coordinators.group_coordinator import GroupService
from ottla.broker.server.deferred_response import Answer
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.events import Heartbeat
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(groups: GroupService, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse | None:
    answer = Answer(context)
    token = groups.ask(
        lambda token: Heartbeat(
            token, request.group_id, request.member_id, request.group_instance_id, request.generation_id
        ),
        lambda result: answer.give(HeartbeatResponse(error_code=int(result.error))),
    )
    return answer.now_or_parked(lambda: groups.forget(token))

"""Heartbeat: a member is alive, and learns whether it has to rejoin (§7.4)."""

from ottla.broker.answer import Answer
from ottla.broker.context import RequestContext
from ottla.coordinator.events import Heartbeat
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse | None:
    groups = context.broker.groups
    error = groups.unavailable(request.group_id)
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # The member should simply go on (§4.3.2).
        return HeartbeatResponse()
    if error:
        return HeartbeatResponse(error_code=error)
    answer = Answer(context)
    token = groups.ask(
        lambda token: Heartbeat(
            token, request.group_id, request.member_id, request.group_instance_id, request.generation_id
        ),
        lambda result: answer.give(HeartbeatResponse(error_code=int(result.error))),
    )
    return answer.now_or_parked(lambda: groups.forget(token))

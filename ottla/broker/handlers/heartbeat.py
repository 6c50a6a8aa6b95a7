"""Heartbeat: a member is alive, and learns whether it has to rejoin (§7.4)."""

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.events import Heartbeat
from ottla.coordinator.results import HeartbeatResult
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(groups: GroupCoordinator, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse | None:
    event = Heartbeat(
        groups.new_token(), request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return groups.ask(context, event, _response)


def _response(result: HeartbeatResult) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=int(result.error))

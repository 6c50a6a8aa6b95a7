"""SyncGroup: the leader hands in the assignment, every member fetches its part (§7.3)."""

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.server.receive_buffers import BUFFER_BYTES
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.events import SyncGroup
from ottla.coordinator.results import SyncResult
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.primitives import Buffer

_PROTOCOL_FROM = 5


def handle(groups: GroupCoordinator, context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse | None:
    requires_protocol = context.api_version >= _PROTOCOL_FROM
    if requires_protocol and (request.protocol_type is None or request.protocol_name is None):
        # Said before anything is asked about the group (§7.3.1).
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    event = SyncGroup(
        token=groups.new_token(),
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=_assignments(context, request),
        requires_protocol=requires_protocol,
    )
    return groups.sync(context, event, _response)


def _assignments(context: RequestContext, request: SyncGroupRequest) -> tuple[tuple[str, Buffer], ...]:
    """Of a frame of many megabytes they stay where they are: it lies in a buffer of the connection's own."""
    if context.size_bytes > BUFFER_BYTES:
        return tuple((each.member_id, each.assignment) for each in request.assignments)
    return tuple((each.member_id, bytes(each.assignment)) for each in request.assignments)


def _response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=int(result.error),
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )

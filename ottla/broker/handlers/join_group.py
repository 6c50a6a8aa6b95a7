"""JoinGroup: a member enters its group's next generation (§7.1)."""

from collections.abc import Sequence
from typing import Any

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.runtime import ITEMS_PER_SLICE, next_step
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.events import JoinGroup
from ottla.coordinator.results import JoinedMember, JoinResult
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

_REBALANCE_TIMEOUT_FROM = 1
_MEMBER_ID_REQUIRED_FROM = 4
_NULL_PROTOCOL_FROM = 7
_SKIP_ASSIGNMENT_FROM = 9


def handle(groups: GroupCoordinator, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse | None:
    version = context.api_version
    has_rebalance_timeout = version >= _REBALANCE_TIMEOUT_FROM
    event = JoinGroup(
        token=groups.new_token(),
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        # Kafka's spelling of an address, which tools show and people search for.
        client_host=f"/{context.client_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        require_known_member_id=version >= _MEMBER_ID_REQUIRED_FROM,
        supports_skip_assignment=version >= _SKIP_ASSIGNMENT_FROM,
        reason=request.reason,
    )
    return groups.ask(context, event, lambda result: _response(result, version))


def _response(result: JoinResult, version: int) -> Any:
    protocol_name = result.protocol_name
    if protocol_name is None and version < _NULL_PROTOCOL_FROM:
        protocol_name = ""
    response = JoinGroupResponse(
        error_code=int(result.error),
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader_id,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
    )
    if len(result.members) > ITEMS_PER_SLICE:
        # Of a leader, whose frame will be long too.
        return _with_members(response, result.members)
    if result.members:
        response.members = _members(result.members)
    return response


async def _with_members(response: JoinGroupResponse, members: Sequence[JoinedMember]) -> JoinGroupResponse:
    for start in range(0, len(members), ITEMS_PER_SLICE):
        response.members += _members(members[start : start + ITEMS_PER_SLICE])
        await next_step()
    return response


def _members(members: Sequence[JoinedMember]) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(
            member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
        )
        for member in members
    ]

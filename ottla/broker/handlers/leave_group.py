"""LeaveGroup: members go, of their own accord or by an administrator (§7.5)."""

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.events import LeaveGroup, LeavingMember
from ottla.coordinator.results import LeaveResult
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

_SEVERAL_MEMBERS_FROM = 3


def handle(groups: GroupCoordinator, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse | None:
    version = context.api_version
    event = LeaveGroup(groups.new_token(), request.group_id, _leaving(request, version))
    return groups.ask(context, event, lambda result: _response(result, version))


def _leaving(request: LeaveGroupRequest, version: int) -> tuple[LeavingMember, ...]:
    if version < _SEVERAL_MEMBERS_FROM:
        return (LeavingMember(request.member_id),)
    return tuple(LeavingMember(member.member_id, member.group_instance_id, member.reason) for member in request.members)


def _response(result: LeaveResult, version: int) -> LeaveGroupResponse:
    if version < _SEVERAL_MEMBERS_FROM:
        # One member, whose error is that of the whole (§7.5.4).
        error = result.error or (result.members[0].error if result.members else result.error)
        return LeaveGroupResponse(error_code=int(error))
    return LeaveGroupResponse(
        error_code=int(result.error),
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=int(member.error),
            )
            for member in result.members
        ],
    )

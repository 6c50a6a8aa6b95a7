"""LeaveGroup: members go, of their own accord or by an administrator (§7.5)."""

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.runtime import in_slices, now_or_later
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.events import LeaveGroup, LeavingMember
from ottla.coordinator.results import LeaveResult, LeftMember
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

_SEVERAL_MEMBERS_FROM = 3


def handle(groups: GroupCoordinator, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse | None:
    version = context.api_version
    event = LeaveGroup(groups.new_token(), request.group_id, _leaving(request, version))
    return groups.ask(context, event, lambda result: now_or_later(_response(result, version), len(result.members)))


def _leaving(request: LeaveGroupRequest, version: int) -> tuple[LeavingMember, ...]:
    if version < _SEVERAL_MEMBERS_FROM:
        return (LeavingMember(request.member_id),)
    return tuple(LeavingMember(member.member_id, member.group_instance_id, member.reason) for member in request.members)


async def _response(result: LeaveResult, version: int) -> LeaveGroupResponse:
    if version < _SEVERAL_MEMBERS_FROM:
        # One member, whose error is that of the whole (§7.5.4).
        error = result.error or (result.members[0].error if result.members else result.error)
        return LeaveGroupResponse(error_code=int(error))
    return LeaveGroupResponse(error_code=int(result.error), members=await in_slices(_member, result.members))


def _member(left: LeftMember) -> MemberResponse:
    return MemberResponse(
        member_id=left.member_id, group_instance_id=left.group_instance_id, error_code=int(left.error)
    )

"""Groups over HTTP: as they are, and what an administrator does to them."""

from typing import Final

from ottla.testing.control.documents import Evicted, GroupDocument, GroupList, GroupSummary, RebalanceList
from ottla.testing.control.log_routes import by_partition
from ottla.testing.control.problems import missing, wrong_value
from ottla.testing.control.questions import EmptyBody, EvictBody, OffsetsBody
from ottla.testing.control.router import ControlCall, Row
from ottla.testing.control.service import ControlService
from ottla.testing.reading import near_names
from ottla.testing.views import GroupView


def _groups(service: ControlService, _call: ControlCall) -> GroupList:
    views = [service.bed.reader.group(each) for each in filter(service.scope.covers, service.bed.reader.group_ids())]
    return GroupList([GroupSummary(each.group_id, each.state, each.generation, len(each.members)) for each in views])


def _group(service: ControlService, call: ControlCall) -> GroupDocument:
    return GroupDocument.of(_group_view(service, call), service.bed.reader)


def _history(service: ControlService, call: ControlCall) -> RebalanceList:
    group_id = call.path["group"]
    rebalances = service.bed.histories.of(group_id)
    if not rebalances:
        _group_view(service, call)
    return RebalanceList(rebalances)


async def _delete(service: ControlService, call: ControlCall) -> GroupList:
    group_id = _group_view(service, call).group_id
    await service.bed.group_commands.delete(group_id)
    return _groups(service, call)


async def _evict(service: ControlService, call: ControlCall) -> Evicted:
    group_id, body = _group_view(service, call).group_id, call.body
    member_id = await service.bed.group_commands.evict(group_id, body.member, body.reason)
    service.events.add("member_evicted", group=group_id, member=member_id)
    return Evicted(member_id, _group(service, call))


def _rebalance(service: ControlService, call: ControlCall) -> GroupDocument:
    service.bed.group_commands.rebalance(_group_view(service, call).group_id)
    return _group(service, call)


async def _set_offsets(service: ControlService, call: ControlCall) -> GroupDocument:
    """Also of a group that is not there yet."""
    group_id, body = call.path["group"], call.body
    view = service.bed.reader.topic(body.topic)
    if view is None:
        raise missing("topic", f"there is no topic {body.topic[:200]!r}")
    offsets = by_partition(view, "offsets", body.offsets)
    for index, offset in offsets.items():
        if offset < 0:
            raise wrong_value(f"offsets.{index}", f"{offset}, expected 0 or more")
    await service.bed.group_commands.set_offsets(group_id, body.topic, offsets)
    return _group(service, call)


def _group_view(service: ControlService, call: ControlCall) -> GroupView:
    """Raises Problem."""
    group_id, reader = call.path["group"], service.bed.reader
    view = reader.group(group_id)
    if not view.exists:
        raise missing("group", f"there is no group {group_id!r}; {near_names('group', group_id, reader.group_ids())}")
    return view


# fmt: off
GROUP_ROWS: Final = (
    Row("GET", "/v1/groups", "All groups.", _groups, answer=GroupList),
    Row("GET", "/v1/groups/{group}", "A group.", _group, answer=GroupDocument),
    Row("DELETE", "/v1/groups/{group}", "Delete a group that has no members.", _delete, answer=GroupList, changes=True),
    Row("GET", "/v1/groups/{group}/history", "Its rebalances.", _history, answer=RebalanceList),
    Row("POST", "/v1/groups/{group}/evict", "Remove a member from a group.", _evict, EvictBody, Evicted, changes=True),
    Row("POST", "/v1/groups/{group}/rebalance", "Have a group rebalance.", _rebalance, EmptyBody, GroupDocument,
        changes=True),
    Row("POST", "/v1/groups/{group}/offsets", "Commit offsets of a group that has no members.", _set_offsets,
        OffsetsBody, GroupDocument, changes=True),
)
# fmt: on

"""Reading a sample of the groups of a cluster: every broker knows those that it coordinates."""

import asyncio
from collections.abc import Mapping, Sequence

from ottla.cli.client import OFFSET_APIS_HIGHEST, TopicPartition
from ottla.cli.doctor.asker import Asker, pages
from ottla.cli.doctor.sample import SeenGroup, SeenMember
from ottla.cli.operations.groups import NO_OFFSET
from ottla.protocol.consumer_protocol import PROTOCOL_TYPE, parse_assignment, parse_subscribed_topics
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.protocol.primitives import DecodeError

GROUPS_PER_REQUEST = 500
# Versions before 8 ask for the offsets of one group at a time.
SEVERAL_GROUPS_SINCE = 8
CLASSIC = ("classic", "")


async def sample_groups(asker: Asker, wanted: Sequence[str]) -> dict[str, SeenGroup]:
    """Those that are named, or all."""
    known: set[str] = set()
    found = await asyncio.gather(*(_groups_at(asker, node_id, wanted, known) for node_id in asker.brokers))
    for group_id in wanted:
        if group_id not in known:
            asker.note("D4", f"group {group_id}: no broker that answered has it")
    return {group_id: group for each in found for group_id, group in each.items()}


async def _groups_at(asker: Asker, node_id: int, wanted: Sequence[str], known: set[str]) -> dict[str, SeenGroup]:
    """`known` gets all groups that the broker has."""
    listed = await asker.ask("D4", "groups", node_id, ListGroupsRequest(), ListGroupsResponse)
    if listed is None or listed.error_code != ErrorCode.NONE:
        return {}
    known.update(row.group_id for row in listed.groups)
    ids = [row.group_id for row in listed.groups if not wanted or row.group_id in wanted]
    others = {row.group_id for row in listed.groups if row.group_type.lower() not in CLASSIC}
    for group_id in sorted(others.intersection(ids)):
        asker.note("D4", f"group {group_id} is of another protocol than the classic one")
    found: dict[str, SeenGroup] = {}
    for page in pages(sorted({*ids} - others), GROUPS_PER_REQUEST):
        request = DescribeGroupsRequest(groups=[*page])
        described = await asker.ask("D4", "groups", node_id, request, DescribeGroupsResponse)
        offsets = await _offsets_at(asker, node_id, page)
        for group in () if described is None else described.groups:
            if group.error_code == ErrorCode.NONE:
                found[group.group_id] = _seen(group, offsets.get(group.group_id, {}))
    return found


async def _offsets_at(asker: Asker, node_id: int, group_ids: Sequence[str]) -> dict[str, Mapping[TopicPartition, int]]:
    ranges = await asker.client.versions_at(asker.brokers[node_id])
    _, highest = ranges.get(OffsetFetchRequest.API_KEY, (0, 0))
    size = GROUPS_PER_REQUEST if highest >= SEVERAL_GROUPS_SINCE else 1
    found: dict[str, Mapping[TopicPartition, int]] = {}
    for page in pages(group_ids, size):
        groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in page]
        request = OffsetFetchRequest(group_id=page[0], topics=None, groups=groups, require_stable=False)
        response = await asker.ask(
            "D6", "committed offsets", node_id, request, OffsetFetchResponse, highest=OFFSET_APIS_HIGHEST
        )
        if response is None:
            break
        found.update(_offsets_of(response, page[0]))
    return found


def _offsets_of(response: OffsetFetchResponse, only: str) -> dict[str, Mapping[TopicPartition, int]]:
    # Version 8 asks for many groups at once and answers with a list.
    if response.groups:
        return {each.group_id: _committed(each.topics) for each in response.groups}
    return {only: _committed(response.topics)}


def _committed(
    topics: Sequence[OffsetFetchResponseTopic] | Sequence[OffsetFetchResponseTopics],
) -> dict[TopicPartition, int]:
    return {
        (topic.name, row.partition_index): row.committed_offset
        for topic in topics
        for row in topic.partitions
        if row.committed_offset != NO_OFFSET
    }


def _seen(group: DescribedGroup, offsets: Mapping[TopicPartition, int]) -> SeenGroup:
    is_consumers = group.protocol_type == PROTOCOL_TYPE
    members = tuple(_member(row, is_consumers=is_consumers) for row in group.members)
    return SeenGroup(group.group_state, group.protocol_data, members, offsets)


def _member(row: DescribedGroupMember, *, is_consumers: bool) -> SeenMember:
    assignment, topics = None, None
    try:
        if is_consumers:
            given = parse_assignment(bytes(row.member_assignment)).assigned_partitions
            assignment = tuple((each.topic, index) for each in given for index in each.partitions)
            metadata = bytes(row.member_metadata)
            # A group that is not stable does not show it.
            topics = tuple(sorted(parse_subscribed_topics(metadata))) if metadata else None
    except DecodeError:
        # A client with bytes of its own: nothing is said of them.
        assignment, topics = None, None
    name = row.group_instance_id or row.client_id
    return SeenMember(row.member_id, name, assignment, topics)

"""What `ottla groups` does, as functions of a client."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from ottla.cli.client import LATEST, OFFSET_APIS_HIGHEST, Client, TopicPartition
from ottla.cli.failures import Refused, check
from ottla.protocol.consumer_protocol import PROTOCOL_TYPE, parse_assignment
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from ottla.protocol.primitives import DecodeError

NO_OFFSET = -1
DEAD = "Dead"
# States in which no member owns a partition, so that offsets can be changed by an admin client.
STATES_WITHOUT_MEMBERS = ("Empty", DEAD)


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    state: str | None
    protocol_type: str
    kind: str | None
    coordinator: int


@dataclass(frozen=True, slots=True)
class MemberDescription:
    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    # None: the group's protocol is not the consumers' own, so the assignment is opaque.
    assignment: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class PartitionLag:
    topic: str
    partition: int
    committed_offset: int | None
    log_end_offset: int | None
    member_id: str | None

    @property
    def lag(self) -> int | None:
        if self.committed_offset is None or self.log_end_offset is None:
            return None
        return max(0, self.log_end_offset - self.committed_offset)


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: str
    members: tuple[MemberDescription, ...]
    partitions: tuple[PartitionLag, ...]


async def list_groups(client: Client) -> list[GroupListing]:
    """Every broker knows the groups it coordinates, so every broker is asked."""
    await client.metadata([])

    async def groups_of(node_id: int) -> list[GroupListing]:
        response = await client.ask_at(client.brokers[node_id], ListGroupsRequest(), ListGroupsResponse)
        check(f"cannot list the groups of broker {node_id}", response.error_code)
        return [
            GroupListing(row.group_id, row.group_state or None, row.protocol_type, row.group_type or None, node_id)
            for row in response.groups
        ]

    listed: list[GroupListing] = []
    for node_id in sorted(client.brokers):
        listed += await client.retrying(partial(groups_of, node_id))
    return sorted(listed, key=lambda group: group.group_id)


async def describe_group(client: Client, group_id: str) -> GroupDescription:
    """Raises Refused when there is no such group."""
    group = await _described(client, group_id)
    if group is None:
        raise Refused(f"group {group_id}", ErrorCode.GROUP_ID_NOT_FOUND)
    members = tuple(sorted((_member(row, group.protocol_type) for row in group.members), key=lambda m: m.member_id))
    owners = {partition: member.member_id for member in members for partition in member.assignment or ()}
    committed = await committed_offsets(client, group_id)
    ends = await _log_end_offsets(client, {*committed, *owners})
    partitions = tuple(
        PartitionLag(topic, index, committed.get((topic, index)), ends.get((topic, index)), owners.get((topic, index)))
        for topic, index in sorted({*committed, *owners})
    )
    coordinator = str(await client.coordinator_of(group_id))
    return GroupDescription(
        group_id, group.group_state, group.protocol_type, group.protocol_data, coordinator, members, partitions
    )


async def group_state(client: Client, group_id: str) -> str:
    """`Dead` for a group that does not exist."""
    group = await _described(client, group_id)
    return DEAD if group is None else group.group_state


async def _described(client: Client, group_id: str) -> DescribedGroup | None:
    """The broker's description, or None for a group that does not exist."""

    async def attempt() -> DescribedGroup:
        request = DescribeGroupsRequest(groups=[group_id])
        response = await client.ask_coordinator(group_id, request, DescribeGroupsResponse)
        group = response.groups[0]
        check(f"group {group_id}", group.error_code, group.error_message)
        return group

    try:
        group = await client.retrying(attempt)
    except Refused as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    return None if group.group_state == DEAD else group


def _member(row: DescribedGroupMember, protocol_type: str) -> MemberDescription:
    assignment = _assignment(bytes(row.member_assignment)) if protocol_type == PROTOCOL_TYPE else None
    return MemberDescription(
        row.member_id, row.group_instance_id, row.client_id, row.client_host.removeprefix("/"), assignment
    )


def _assignment(data: bytes) -> tuple[TopicPartition, ...] | None:
    try:
        assignment = parse_assignment(data)
    except DecodeError:
        return None
    return tuple(sorted((topic.topic, index) for topic in assignment.assigned_partitions for index in topic.partitions))


async def committed_offsets(client: Client, group_id: str) -> dict[TopicPartition, int]:
    """Everything the group has committed."""

    async def attempt() -> dict[TopicPartition, int]:
        groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None)]
        request = OffsetFetchRequest(group_id=group_id, topics=None, groups=groups, require_stable=False)
        response = await client.ask_coordinator(group_id, request, OffsetFetchResponse, highest=OFFSET_APIS_HIGHEST)
        # Version 8 asks for many groups at once and answers with a list.
        answer = response.groups[0] if response.groups else response
        check(f"cannot read the offsets of group {group_id}", answer.error_code)
        offsets: dict[TopicPartition, int] = {}
        for topic in answer.topics:
            for row in topic.partitions:
                check(f"cannot read the offset of {topic.name}-{row.partition_index}", row.error_code)
                if row.committed_offset != NO_OFFSET:
                    offsets[topic.name, row.partition_index] = row.committed_offset
        return offsets

    return await client.retrying(attempt)


async def _log_end_offsets(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Those that can be read: a committed offset may outlive its topic, and a partition may have lost its leader."""
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in sorted(partitions):
        by_topic.setdefault(partition[0], []).append(partition)
    metadata = await client.metadata(sorted(by_topic))
    led = [
        (str(topic.name), row.partition_index)
        for topic in metadata.topics
        for row in topic.partitions
        if topic.error_code == ErrorCode.NONE and row.leader_id in client.brokers
    ]
    return await client.list_offsets({*led} & {p for rows in by_topic.values() for p in rows}, LATEST)


async def commit_offsets(client: Client, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit for a group without members; raises Refused when it has some."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, index), offset in sorted(offsets.items()):
        topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name, partitions=[]))
        topic.partitions.append(OffsetCommitRequestPartition(partition_index=index, committed_offset=offset))

    async def attempt() -> None:
        request = OffsetCommitRequest(
            group_id=group_id, generation_id_or_member_epoch=-1, member_id="", topics=list(topics.values())
        )
        response = await client.ask_coordinator(group_id, request, OffsetCommitResponse, highest=OFFSET_APIS_HIGHEST)
        for topic in response.topics:
            for row in topic.partitions:
                what = f"cannot commit {topic.name}-{row.partition_index} for group {group_id}"
                check(what, row.error_code)

    await client.retrying(attempt)


async def delete_group(client: Client, group_id: str) -> None:
    async def attempt() -> None:
        request = DeleteGroupsRequest(groups_names=[group_id])
        response = await client.ask_coordinator(group_id, request, DeleteGroupsResponse)
        check(f"cannot delete group {group_id}", response.results[0].error_code)

    await client.retrying(attempt)


async def delete_offsets(client: Client, group_id: str, partitions: Iterable[TopicPartition]) -> None:
    """Delete committed offsets; raises Refused where a consumer of the group reads the topic."""
    topics: dict[str, OffsetDeleteRequestTopic] = {}
    for name, index in sorted(partitions):
        topic = topics.setdefault(name, OffsetDeleteRequestTopic(name=name, partitions=[]))
        topic.partitions.append(OffsetDeleteRequestPartition(partition_index=index))

    async def attempt() -> None:
        request = OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))
        response = await client.ask_coordinator(group_id, request, OffsetDeleteResponse)
        check(f"cannot delete offsets of group {group_id}", response.error_code)
        for topic in response.topics:
            for row in topic.partitions:
                what = f"cannot delete the offset of {topic.name}-{row.partition_index} of group {group_id}"
                check(what, row.error_code)

    await client.retrying(attempt)

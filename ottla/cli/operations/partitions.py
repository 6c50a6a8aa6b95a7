"""What `ottla partitions` does, as functions of a client."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum

from ottla.cli.client import Client, TopicPartition
from ottla.cli.failures import ClientError, Refused, check
from ottla.cli.operations.even_replicas import spread_evenly
from ottla.cli.operations.replica_progress import lags, log_ends
from ottla.cli.operations.topics import list_topics
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    TopicRequest,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from ottla.protocol.messages.metadata import MetadataResponsePartition

# Codes of a partition without a leader or with unavailable replicas: it is shown as it is.
SHOWN = (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE)

POLL_S = 0.5

PartitionRow = DescribeTopicPartitionsResponsePartition | MetadataResponsePartition


class ElectionType(IntEnum):
    """The types of ElectLeaders (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """`elr` are the eligible leader replicas, None where the cluster does not report them (before Kafka 4.0)."""

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None
    offline: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """The result of a request for one partition: `error` is a sentence, None for success."""

    topic: str
    partition: int
    code: int
    error: str | None


@dataclass(frozen=True, slots=True)
class Move:
    """A reassignment under way; `replicas` are the present ones with those to be added."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProposedMove:
    topic: str
    partition: int
    replicas: tuple[int, ...]
    proposed: tuple[int, ...]


async def plan_moves(client: Client, topics: Sequence[str], node_ids: Sequence[int] | None) -> list[ProposedMove]:
    """As many replicas as each partition has, spread evenly, preferred leaders too; what need not change is left out.

    Raises ClientError."""
    states = await describe_partitions(client, topics)
    live = {broker.node_id: broker.rack for broker in (await client.metadata([])).brokers}
    racks = live if node_ids is None else {node_id: live.get(node_id) for node_id in node_ids}
    for node_id in racks:
        if node_id not in live:
            raise ClientError(f"broker {node_id} is not live")
    for each in states:
        if len(each.replicas) > len(racks):
            count = len(each.replicas)
            raise ClientError(f"{each.topic}:{each.partition} has {count} replicas, more than the brokers to use")
    proposed = spread_evenly({(each.topic, each.partition): each.replicas for each in states}, racks)
    moves = (
        ProposedMove(each.topic, each.partition, each.replicas, proposed[each.topic, each.partition]) for each in states
    )
    return [move for move in moves if move.proposed != move.replicas]


async def describe_partitions(client: Client, topics: Sequence[str]) -> list[PartitionState]:
    """Of all topics but internal ones where none are named; raises Refused for one that does not exist."""
    names = topics or [topic.name for topic in await list_topics(client) if not topic.is_internal]
    if not names:
        return []
    moves = await list_moves(client)
    has_elr = await client.version_at_controller(DescribeTopicPartitionsRequest) is not None
    rows = await _from_description(client, names) if has_elr else await _from_metadata(client, names)
    states = (_state(key, row, moves.get(key)) for key, row in rows.items())
    return sorted(states, key=lambda each: (each.topic, each.partition))


def _state(key: TopicPartition, row: PartitionRow, move: Move | None) -> PartitionState:
    elr = row.eligible_leader_replicas if isinstance(row, DescribeTopicPartitionsResponsePartition) else None
    return PartitionState(
        topic=key[0],
        partition=key[1],
        leader=row.leader_id if row.leader_id >= 0 else None,
        leader_epoch=row.leader_epoch if row.leader_epoch >= 0 else None,
        replicas=tuple(row.replica_nodes),
        isr=tuple(row.isr_nodes),
        elr=None if elr is None else tuple(elr),
        offline=tuple(row.offline_replicas),
        adding=move.adding if move is not None else (),
        removing=move.removing if move is not None else (),
    )


async def _from_metadata(client: Client, names: Sequence[str]) -> Mapping[TopicPartition, PartitionRow]:
    rows: dict[TopicPartition, PartitionRow] = {}
    for topic in (await client.metadata(names)).topics:
        if topic.error_code not in SHOWN:
            check(f"topic {topic.name}", topic.error_code)
        rows.update({(str(topic.name), row.partition_index): row for row in topic.partitions})
    return rows


async def _from_description(client: Client, names: Sequence[str]) -> Mapping[TopicPartition, PartitionRow]:
    rows: dict[TopicPartition, PartitionRow] = {}
    cursor: Cursor | None = None
    remaining = sorted(set(names))
    while True:
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in remaining], cursor=cursor)
        response = await client.ask_any(request, DescribeTopicPartitionsResponse)
        for topic in response.topics:
            check(f"topic {topic.name}", topic.error_code)
            rows.update({(str(topic.name), row.partition_index): row for row in topic.partitions})
        cursor = response.next_cursor
        if cursor is None:
            return rows
        remaining = [name for name in remaining if name >= cursor.topic_name]


async def elect_leaders(
    client: Client, election: ElectionType, partitions: Iterable[TopicPartition] | None
) -> list[PartitionOutcome]:
    """One outcome for each partition; for None, all partitions, only for those that needed an election."""
    topics = None
    if partitions is not None:
        topics = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in _by_topic(partitions).items()]

    async def attempt() -> list[PartitionOutcome]:
        request = ElectLeadersRequest(
            election_type=int(election), topic_partitions=topics, timeout_ms=client.timeout_ms
        )
        response = await client.ask_controller(request, ElectLeadersResponse)
        check("cannot elect leaders", response.error_code)
        return [
            _outcome((topic.topic, row.partition_id), row.error_code, row.error_message)
            for topic in response.replica_election_results
            for row in topic.partition_result
        ]

    return sorted(await client.retrying(attempt), key=lambda each: (each.topic, each.partition))


async def reassign(client: Client, targets: Mapping[TopicPartition, Sequence[int] | None]) -> list[PartitionOutcome]:
    """Begin to move partitions to other replicas, the first to be preferred; None cancels the move of a partition."""
    topics = [
        ReassignableTopic(name=name, partitions=[_target(index, targets[name, index]) for index in indexes])
        for name, indexes in _by_topic(targets).items()
    ]

    async def attempt() -> list[PartitionOutcome]:
        request = AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=client.timeout_ms)
        response = await client.ask_controller(request, AlterPartitionReassignmentsResponse)
        check("cannot move partitions", response.error_code, response.error_message)
        return [
            _outcome((topic.name, row.partition_index), row.error_code, row.error_message)
            for topic in response.responses
            for row in topic.partitions
        ]

    return sorted(await client.retrying(attempt), key=lambda each: (each.topic, each.partition))


async def cancel_reassignments(
    client: Client, partitions: Iterable[TopicPartition], topics: Collection[str]
) -> list[PartitionOutcome]:
    """Cancel the moves of these partitions, and of those partitions of the topics that are being moved."""
    keys = {*partitions, *(key for key in await list_moves(client) if key[0] in topics)}
    return await reassign(client, dict.fromkeys(sorted(keys))) if keys else []


async def partitions_of(client: Client, topics: Iterable[str]) -> list[TopicPartition]:
    """All partitions of these topics."""
    found: list[TopicPartition] = []
    for topic in topics:
        found += [(state.topic, state.partition) for state in await describe_partitions(client, [topic])]
    return found


async def list_moves(client: Client, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Move]:
    """The reassignments under way, of these partitions or of all; nothing where the cluster knows none."""
    if await client.version_at_controller(ListPartitionReassignmentsRequest) is None:
        return {}
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
            for name, indexes in _by_topic(partitions).items()
        ]

    async def attempt() -> dict[TopicPartition, Move]:
        request = ListPartitionReassignmentsRequest(topics=topics, timeout_ms=client.timeout_ms)
        response = await client.ask_controller(request, ListPartitionReassignmentsResponse)
        check("cannot list the partitions that are being moved", response.error_code, response.error_message)
        return {
            (topic.name, row.partition_index): Move(
                tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
            )
            for topic in response.topics
            for row in topic.partitions
        }

    return await client.retrying(attempt)


class MoveProgress:
    """How many partitions have been moved, and how many records their new replicas still lack."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.moved = 0
        self.records_to_copy: int | None = None


async def wait_for_moves(
    client: Client, partitions: Collection[TopicPartition], wait_s: float | None, progress: MoveProgress
) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of the partitions once no move of them is under way, or after `wait_s`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            while moves := await list_moves(client, partitions):
                progress.moved = progress.partitions - len(moves)
                progress.records_to_copy = await records_to_copy(client, moves)
                await asyncio.sleep(POLL_S)
    return await replicas_of(client, partitions)


async def records_to_copy(client: Client, moves: Mapping[TopicPartition, Move]) -> int | None:
    """How many records the replicas that are being added lack in all; None if that is unknown of all of them."""
    leaders: dict[TopicPartition, int] = {}
    for topic in (await client.metadata(sorted({name for name, _ in moves}))).topics:
        leaders.update({(str(topic.name), row.partition_index): row.leader_id for row in topic.partitions})
    ends = await log_ends(client, {key: move.replicas for key, move in moves.items()})
    behind = [
        lag
        for key, move in moves.items()
        for lag in lags(ends, key, leaders.get(key), move.adding).values()
        if lag is not None
    ]
    return sum(behind) if behind else None


async def replicas_of(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, ...]]:
    """Those that exist."""
    wanted = set(partitions)
    topics = (await client.metadata(sorted({name for name, _ in wanted}))).topics
    return {
        (str(topic.name), row.partition_index): tuple(row.replica_nodes)
        for topic in topics
        for row in topic.partitions
        if (topic.name, row.partition_index) in wanted
    }


def _outcome(key: TopicPartition, code: int, message: str | None) -> PartitionOutcome:
    error = None
    if code != ErrorCode.NONE:
        error = str(Refused(f"partition {key[0]}-{key[1]}", code, message))
    return PartitionOutcome(*key, code, error)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for name, index in sorted(partitions):
        topics.setdefault(name, []).append(index)
    return topics


def _target(index: int, replicas: Sequence[int] | None) -> ReassignablePartition:
    return ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))

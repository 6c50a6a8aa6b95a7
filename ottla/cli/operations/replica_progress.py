"""The log end offsets of replicas, from the brokers that have them."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from ottla.cli.client import LATEST, Client, TopicPartition
from ottla.cli.failures import ClientError
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

# Kafka's `ListOffsetsRequest.DEBUGGING_REPLICA_ID`: any replica answers, with its own log end offset.
ANY_REPLICA = -2

LogEnds = Mapping[tuple[TopicPartition, int], int]
"""Log end offsets by partition and node id, of the replicas that answered."""


async def log_ends(client: Client, replicas: Mapping[TopicPartition, Sequence[int]]) -> LogEnds:
    """All brokers are asked at once. Replicas of brokers that do not answer are missing, and so are those of a broker
    that answers only for the partitions it leads."""
    by_node: dict[int, list[TopicPartition]] = {}
    for partition, node_ids in replicas.items():
        for node_id in node_ids:
            if node_id in client.brokers:
                by_node.setdefault(node_id, []).append(partition)
    answers = await asyncio.gather(*(_log_ends_at(client, node_id, asked) for node_id, asked in by_node.items()))
    return {
        (partition, node_id): end for node_id, ends in zip(by_node, answers, strict=True) for partition, end in ends
    }


def lags(
    ends: LogEnds, partition: TopicPartition, leader: int | None, replicas: Iterable[int]
) -> dict[int, int | None]:
    """The records that each follower has still to copy, by node id; None where it is not known."""
    end = None if leader is None else ends.get((partition, leader))
    found: dict[int, int | None] = {}
    for node_id in replicas:
        if node_id != leader:
            own = ends.get((partition, node_id))
            found[node_id] = None if end is None or own is None else max(0, end - own)
    return found


async def _log_ends_at(
    client: Client, node_id: int, partitions: Sequence[TopicPartition]
) -> list[tuple[TopicPartition, int]]:
    topics: dict[str, ListOffsetsTopic] = {}
    for name, index in partitions:
        topic = topics.setdefault(name, ListOffsetsTopic(name=name))
        topic.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=LATEST))
    request = ListOffsetsRequest(replica_id=ANY_REPLICA, topics=list(topics.values()), timeout_ms=client.timeout_ms)
    try:
        response = await client.ask_at(client.brokers[node_id], request, ListOffsetsResponse)
    except ClientError:
        return []
    return [
        ((topic.name, row.partition_index), row.offset)
        for topic in response.topics
        for row in topic.partitions
        if row.error_code == ErrorCode.NONE
    ]

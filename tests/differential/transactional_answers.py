"""What a broker says of logs with transactions in them, as JSON that two brokers can share."""

from typing import Any

from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.records.batch import iterate_batches
from tests.broker.requests import list_offsets
from tests.differential.connection import Address, Connection
from tests.differential.script import WHOLE_LOG

PARTITIONS = (("t", 0), ("t", 1), ("cut", 0), ("cut", 1), ("__consumer_offsets", 0))
READ_COMMITTED = 1
EARLIEST, LATEST = -2, -1


def answers_about(address: Address, name: str) -> dict[str, Any]:
    """`name` is that of the script which has written them."""
    with Connection(address) as connection:
        logs = {}
        for topic, index in PARTITIONS:
            real = topic if topic.startswith("__") else f"{name}-{topic}"
            logs[f"{real}-{index}"] = _log(connection, real, index)
        return {
            "logs": logs,
            "transactions": _transactions(connection),
            "offsets": _offsets(connection, f"{name}-g"),
        }


def _log(connection: Connection, topic: str, index: int) -> dict[str, Any]:
    start = _offset(connection, topic, index, EARLIEST, 0)
    end = _offset(connection, topic, index, LATEST, 0)
    asked = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
    producers = connection.ask(asked, 0).topics[0].partitions[0].active_producers
    return {
        "log_start_offset": start,
        "high_watermark": end,
        "last_stable_offset": _offset(connection, topic, index, LATEST, READ_COMMITTED),
        "reads_of_a_batch": [_read(connection, topic, index, offset, 1) for offset in range(start, end)],
        "reads_of_a_segment": [_read(connection, topic, index, offset, WHOLE_LOG) for offset in range(start, end)],
        "producers": sorted(
            [
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                each.last_timestamp,
                each.coordinator_epoch,
                each.current_txn_start_offset,
            ]
            for each in producers
        ),
    }


def _offset(connection: Connection, topic: str, index: int, timestamp: int, isolation_level: int) -> int:
    request = list_offsets(topic, index, timestamp=timestamp)
    request.isolation_level = isolation_level
    return int(connection.ask(request, 7).topics[0].partitions[0].offset)


def _read(connection: Connection, topic: str, index: int, offset: int, max_bytes: int) -> list[Any]:
    """From where, the end of the batches that were answered, and producer and first offset of each transaction that
    is said to be aborted and begins before that end. Kafka names further ones: those up to the next index entry."""
    partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=0, isolation_level=READ_COMMITTED, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )
    (found,) = connection.ask(request, 12).responses[0].partitions
    assert not found.error_code, f"{topic}-{index} at {offset}: error {found.error_code}"
    headers = [header for _, header in iterate_batches(memoryview(bytes(found.records or b"")))]
    end = headers[-1].last_offset + 1 if headers else offset
    aborted = ([each.producer_id, each.first_offset] for each in found.aborted_transactions or ())
    return [offset, end, sorted(each for each in aborted if each[1] < end)]


def _transactions(connection: Connection) -> dict[str, Any]:
    listed = connection.ask(ListTransactionsRequest(), 0).transaction_states
    asked = DescribeTransactionsRequest(transactional_ids=sorted(each.transactional_id for each in listed))
    return {
        each.transactional_id: {
            "state": each.transaction_state,
            "producer": [each.producer_id, each.producer_epoch],
            "timeout_ms": each.transaction_timeout_ms,
            "started_ms": each.transaction_start_time_ms,
            "partitions": sorted(f"{topic.topic}-{index}" for topic in each.topics for index in topic.partitions),
        }
        for each in connection.ask(asked, 0).transaction_states
    }


def _offsets(connection: Connection, group_id: str) -> dict[str, Any]:
    """With and without waiting for open transactions: offset and error of each partition."""
    found = {}
    for stable in (False, True):
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)], require_stable=stable
        )
        (group,) = connection.ask(request, 8).groups
        found["stable" if stable else "any"] = {
            f"{topic.name}-{each.partition_index}": [each.committed_offset, each.error_code]
            for topic in group.topics
            for each in topic.partitions
        }
    return found

"""What the doctor does beside reading: a topic of its own (`--probe`), in which it asks each broker for its clock; and
the look at a record that a group does not get past."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from time import time

from ottla.cli.client import PRODUCE_HIGHEST, Client, TopicPartition
from ottla.cli.doctor.asker import Asker
from ottla.cli.doctor.sample import WaitingRecord
from ottla.cli.doctor.sampling import PROBE_TOPIC
from ottla.cli.failures import ClientError, check
from ottla.cli.operations.event_history import FETCH_HIGHEST
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.records.batch import iterate_batches
from ottla.protocol.records.record import Record, build_batch, iterate_records

RECORD_BYTES = 1 << 20
# The controller has made the topic before each broker knows of it.
NOT_HEARD_OF_YET = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
CONFIGS = {"message.timestamp.type": "LogAppendTime", "retention.ms": "3600000", "min.insync.replicas": "1"}


async def clocks_by_records(asker: Asker) -> dict[int, tuple[int, int]]:
    """How far each broker's clock is ahead of ours, in milliseconds, and how exactly that is known: by a record that
    gets its timestamp there. Raises ClientError where the topic cannot be made."""
    node_ids = sorted(asker.brokers)
    found: dict[int, tuple[int, int]] = {}
    async with _probe_topic(asker.client, node_ids):
        for index, node_id in enumerate(node_ids):
            began_ms = time() * 1000
            at_ms = await asker.client.retrying(partial(_appended, asker, node_id, index), also=NOT_HEARD_OF_YET)
            ended_ms = time() * 1000
            found[node_id] = round(at_ms - (began_ms + ended_ms) / 2), round((ended_ms - began_ms) / 2) + 1
    return found


@asynccontextmanager
async def _probe_topic(client: Client, node_ids: list[int]) -> AsyncGenerator[None]:
    """A partition on each broker; the topic is deleted at the end, if it was not there before."""
    topic = CreatableTopic(
        name=PROBE_TOPIC,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=[node_id])
            for index, node_id in enumerate(node_ids)
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in CONFIGS.items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=client.timeout_ms)
    response = await client.ask_controller(request, CreateTopicsResponse)
    check(f"cannot create topic {PROBE_TOPIC}", response.topics[0].error_code, response.topics[0].error_message)
    try:
        yield
    finally:
        names = [PROBE_TOPIC]
        deletion = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=PROBE_TOPIC)], topic_names=names, timeout_ms=client.timeout_ms
        )
        await client.ask_controller(deletion, DeleteTopicsResponse)


async def _appended(asker: Asker, node_id: int, index: int) -> int:
    """When the broker appended a record, by its clock. Raises Refused."""
    batch = build_batch([Record(timestamp=round(time() * 1000), value=b"ottla doctor")])
    rows = [PartitionProduceData(index=index, records=batch)]
    request = ProduceRequest(
        acks=1, timeout_ms=asker.client.timeout_ms, topic_data=[TopicProduceData(name=PROBE_TOPIC, partition_data=rows)]
    )
    asker.requests += 1
    response = await asker.client.ask_at(asker.brokers[node_id], request, ProduceResponse, highest=PRODUCE_HIGHEST)
    row = response.responses[0].partition_responses[0]
    check(f"cannot produce to {PROBE_TOPIC}-{index}", row.error_code)
    return int(row.log_append_time_ms)


async def waiting_records(
    asker: Asker, leaders: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, WaitingRecord]:
    """The records at these offsets, each by its leader's id and its offset."""
    found: dict[TopicPartition, WaitingRecord] = {}
    for key, (node_id, offset) in leaders.items():
        row = FetchPartition(partition=key[1], fetch_offset=offset, partition_max_bytes=RECORD_BYTES)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=RECORD_BYTES, isolation_level=0, session_id=0,
            topics=[FetchTopic(topic=key[0], partitions=[row])],
        )  # fmt: skip
        response = await asker.ask("D7", "records", node_id, request, FetchResponse, highest=FETCH_HIGHEST)
        if response is not None and response.responses:
            data = response.responses[0].partitions[0]
            if data.error_code == ErrorCode.NONE:
                found[key] = _record_at(bytes(data.records or b""), offset)
    return found


def _record_at(records: bytes, offset: int) -> WaitingRecord:
    try:
        for position, header in iterate_batches(records):
            if header.base_offset + header.last_offset_delta >= offset:
                return _first_from(records[position:], offset)
    except KafkaError as error:
        return WaitingRecord(None, problem=f"the batch there cannot be read: {error}")
    return WaitingRecord(None, problem="there is no whole batch at the offset")


def _first_from(batch: bytes, offset: int) -> WaitingRecord:
    for record in iterate_records(batch):
        if record.offset >= offset:
            size = len(record.key or b"") + len(record.value or b"")
            return WaitingRecord(size, tuple(name for name, _ in record.headers), _undecodable(record))
    return WaitingRecord(None, problem="the records from the offset on are compacted away")


def _undecodable(record: Record) -> str | None:
    if record.value is None:
        return "its value is null"
    try:
        record.value.decode()
    except UnicodeDecodeError:
        return "its value is not UTF-8, so no JSON either"
    return None


async def could_probe(asker: Asker) -> dict[int, tuple[int, int]]:
    """Nothing, and a note, where the topic cannot be made or written."""
    try:
        return await clocks_by_records(asker)
    except ClientError as error:
        asker.note("D10", f"--probe: {error}")
        return {}

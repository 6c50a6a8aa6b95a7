"""What a handle changes: topics, records, offsets, members. Coroutines of the brokers' loop; no connection is made."""

from collections.abc import Mapping, Sequence
from itertools import chain, cycle
from typing import Final, TypeAlias, TypedDict

from ottla.broker.assembly import Parts
from ottla.broker.metadata.topic_plans import MorePartitions, NewTopic, Outcome
from ottla.cluster.image import CONSUMER_OFFSETS
from ottla.cluster.topics import USE_DEFAULT, TopicSpec
from ottla.protocol.errors import ErrorCode, KafkaError, NotLeaderOrFollower, UnknownTopicOrPartition, error_for
from ottla.protocol.messages.produce import PartitionProduceResponse
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record import Record, RecordHeader
from ottla.replication.partition import ACKS_ALL, Partition
from ottla.storage.log import AppendInfo
from ottla.testing.conditions import CoordinatorsLoaded, Sources, TopicCondition, partition_led_by
from ottla.testing.hosting import HostedBrokers
from ottla.testing.produced_batches import BuiltBatch, built_batches
from ottla.testing.waits import Waits
from ottla.testing.wire import WireRing

WITHIN_S: Final = 30.0
"""For leaders and acknowledgements of the handle's own calls."""

GivenRecord: TypeAlias = "Record | bytes | tuple[bytes | None, bytes | None]"
"""A record, its value, or its key and value."""


class ProduceOptions(TypedDict, total=False):
    """Options of `produce`, all of them keywords:

    partition: of all records; without it, keys choose as Kafka's clients in Java do, and records without keys go to one
        partition after the other.
    timestamp: in milliseconds, of records that have none; without it, the broker's time.
    headers: of records that have none.
    acks: -1, the default, waits for all replicas; 1 and 0 do not.
    compression: none, gzip, snappy, lz4 or zstd.
    as_producer: forges an idempotent batch: producer id, epoch, first sequence.
    """

    partition: int | None
    timestamp: int | None
    headers: Sequence[RecordHeader]
    acks: int
    compression: str
    as_producer: tuple[int, int, int] | None


class BrokerWriter:
    """Everything here runs on the loop of the brokers."""

    def __init__(self, hosted: HostedBrokers, sources: Sources, waits: Waits, wire: WireRing) -> None:
        self._hosted = hosted
        self._wire = wire
        self._sources = sources
        self._reader = sources.reader
        self._waits = waits

    async def create_topic(
        self, name: str, partitions: int | None, replication_factor: int | None, configs: Mapping[str, object]
    ) -> None:
        """Returns when all partitions have a leader that serves. Raises the KafkaError of CreateTopics."""
        factor = USE_DEFAULT if replication_factor is None else replication_factor
        spec = TopicSpec(name, USE_DEFAULT if partitions is None else partitions, factor)
        texts = {key: _config_text(value) for key, value in configs.items()}
        _raise_error(await self._hosted.first().topics.create([NewTopic(spec, texts)]))
        await self._led(name)

    async def ensure_group_coordinators(self) -> None:
        """`__consumer_offsets` is there, and all of its partitions are served. Raises DeadlineExceeded."""
        if self._reader.image.topic(CONSUMER_OFFSETS) is None:
            for parts in self._hosted.parts().values():
                parts.group_loader.prepare()
            await self._hosted.first().auto_topic_creation.coordinator_topic_ensured(CONSUMER_OFFSETS)
        await self._waits.wait(CoordinatorsLoaded(self._sources), WITHIN_S)

    async def delete_topic(self, name: str) -> None:
        """Raises UnknownTopicOrPartition."""
        parts = self._hosted.first()
        topic = parts.metadata.image.topic(name)
        if topic is None:
            raise self._reader.no_topic(name)
        _raise_error(await parts.topics.delete([topic]))

    async def add_partitions(self, name: str, count: int) -> None:
        """`count`: how many there are then. Raises the KafkaError of CreatePartitions."""
        _raise_error(await self._hosted.first().topics.create_partitions([MorePartitions(name, count, None)]))
        await self._led(name)

    async def delete_records(self, name: str, index: int, before: int) -> None:
        """Raises OffsetOutOfRange above the high watermark."""
        parts, replica = self._leader(name, index)
        if not 0 <= before <= replica.high_watermark:
            raise error_for(ErrorCode.OFFSET_OUT_OF_RANGE, f"{name}-{index} ends at {replica.high_watermark}")
        if self._wire.recorder is not None:
            self._wire.recorder.note_deletion(name, index, before)
        replica.log.delete_records_before(before)
        parts.replicas.log_start_rose(replica)
        parts.runtime.end_event()

    async def alter_topic(self, name: str, configs: Mapping[str, object]) -> None:
        """Sets these of its configs; None goes back to the default. Raises UnknownTopicOrPartition, InvalidConfig."""
        parts = self._hosted.first()

        def altered() -> dict[str, str]:
            topic = parts.metadata.image.topic(name)
            now: dict[str, object] = {**({} if topic is None else topic.configs), **configs}
            return {key: _config_text(value) for key, value in now.items() if value is not None}

        await parts.config_admin.alter_topic(name, altered)
        revision = parts.metadata.image.revision
        for each in self._hosted.informed():
            await each.metadata.applied(revision)

    async def produce(
        self,
        name: str,
        records: Sequence[GivenRecord],
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Sequence[RecordHeader] = (),
        acks: int = ACKS_ALL,
        compression: str = "none",
        as_producer: tuple[int, int, int] | None = None,
    ) -> list[tuple[int, int]]:
        """Partition and offset of each record; the options are `ProduceOptions`. The checks are those of a request, and
        with acks=all the answer waits for the replicas. Many records are several batches, each of at most
        `max.message.bytes`; before all are known to be, nothing is written. A topic that is not there is created where
        `auto.create.topics.enable` lets clients do that. Raises the KafkaError of the answer."""
        if not records:
            return []
        await self._ensure(name)
        wall_ms = self._hosted.first().runtime.broker_clock.wall_ms()
        made = [record_of(each, wall_ms if timestamp is None else timestamp, headers) for each in records]
        view = self._reader.topic(name)
        count = 0 if view is None else len(view.partitions)
        places = _places(made, partition, count)
        codec = Codec[compression.upper()]
        built: dict[int, list[BuiltBatch]] = {}
        for index in dict.fromkeys(places):
            own = [each for each, place in zip(made, places, strict=True) if place == index]
            _, replica = self._leader(name, index)
            built[index] = built_batches(own, f"{name}-{index}", replica.log.config, codec, as_producer)
        if as_producer is not None and self._wire.recorder is not None:
            self._wire.recorder.note_forged(as_producer[0])
        offsets = {index: [await self._append(name, index, each, acks) for each in built[index]] for index in built}
        following = {index: chain.from_iterable(ranges) for index, ranges in offsets.items()}
        return [(index, next(following[index])) for index in places]

    async def _append(self, name: str, index: int, batch: BuiltBatch, acks: int) -> range:
        """The offsets of its records."""
        parts, replica = self._leader(name, index)
        answer = PartitionProduceResponse(index=index)
        info = parts.replicas.append(replica, batch.data, acks, answer, zstd_allowed=True)
        parts.runtime.end_event()
        if answer.error_code:
            raise error_for(ErrorCode(answer.error_code), answer.error_message or "the records could not be written")
        if acks == ACKS_ALL and replica.high_watermark <= info.last_offset:
            await self._waits.wait(self._acknowledged(replica, info), WITHIN_S)
        return range(info.base_offset, info.base_offset + batch.record_count)

    def _acknowledged(self, replica: Partition, info: AppendInfo) -> TopicCondition:
        def lacks() -> list[str]:
            left = replica.high_watermark <= info.last_offset
            return [f"replicas up to offset {info.last_offset}"] if left else []

        wanted = f"{replica.topic}-{replica.index} did not acknowledge what was produced"
        return TopicCondition(self._sources, replica.topic, wanted, lacks)

    async def _ensure(self, name: str) -> None:
        if self._reader.image.topic(name) is None:
            parts = self._hosted.first()
            if not parts.runtime.config.auto_create_topics_enable:
                raise UnknownTopicOrPartition(f"there is no topic {name!r}, and auto.create.topics.enable is false")
            outcomes = await parts.topics.create([NewTopic(TopicSpec(name), {})])
            if isinstance(outcomes[0], KafkaError) and outcomes[0].code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise outcomes[0]
        await self._led(name)

    async def _led(self, name: str) -> None:
        """Returns when all its partitions have leaders, and all brokers know them that hear of it."""
        topic = self._reader.image.topic(name)
        for index in range(0 if topic is None else len(topic.partitions)):
            await self._waits.wait(partition_led_by(self._sources, name, index, None), WITHIN_S)
        revision = self._reader.image.revision
        for parts in self._hosted.informed():
            await parts.metadata.applied(revision)

    def _leader(self, name: str, index: int) -> tuple[Parts, Partition]:
        replica = self._reader.leader(name, index)
        if replica is None:
            if self._reader.image.partition(name, index) is None:
                raise self._reader.no_partition(name, index)
            raise NotLeaderOrFollower(f"{name}-{index} has no leader")
        return self._hosted.parts()[replica.leader_id], replica


def _raise_error(outcomes: Sequence[Outcome]) -> None:
    for each in outcomes:
        if isinstance(each, KafkaError):
            raise each


def _config_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def record_of(given: GivenRecord, timestamp: int, headers: Sequence[RecordHeader]) -> Record:
    """`timestamp` and `headers` are for a record that has none. Raises TypeError."""
    match given:
        case Record():
            stamped = given if given.timestamp >= 0 else given._replace(timestamp=timestamp)
            return stamped if given.headers or not headers else stamped._replace(headers=headers)
        case bytes():
            return Record(timestamp=timestamp, value=given, headers=headers)
        case (None | bytes() as key, None | bytes() as value):
            return Record(timestamp=timestamp, key=key, value=value, headers=headers)
        case _:
            raise TypeError(f"{given!r} is no record: expected bytes, a pair of key and value, or a Record")


def _places(records: Sequence[Record], partition: int | None, count: int) -> list[int]:
    """The partition of each record: as given, by its key as Kafka's clients in Java do, or one after the other."""
    if partition is not None:
        return [partition] * len(records)
    turns = cycle(range(max(count, 1)))
    return [next(turns) if each.key is None else (murmur2(each.key) & 0x7FFFFFFF) % max(count, 1) for each in records]


def murmur2(data: bytes) -> int:
    """The hash of 32 bits by which Kafka's default partitioner places a key (`Utils.murmur2`)."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    value = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        value = value * multiplier & mask ^ word
    rest = data[whole:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * multiplier & mask
    value = (value ^ value >> 13) * multiplier & mask
    return value ^ value >> 15

"""Producers and readers of ordinary topics, and what they hold a log to (I-5, I-9, I-10).

An acknowledged record stands at its offset and every reader finds it there; offsets follow one another without gaps; a
record of an idempotent producer, however often it was sent, stands there once.
"""

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.batch import iterate_batches
from ottla.protocol.records.record import Record, build_batch, iterate_records
from tests.simulation.judge import Judge
from tests.simulation.wire import LOST, Wire

if TYPE_CHECKING:
    from tests.simulation.world import World

PROMPT_MS = 2_000
FETCH_WAIT_MS = 500
NO_PRODUCER_ID = -1
# What a producer gets that was forgotten; it begins again with another id.
PRODUCER_FORGOTTEN = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
PASSING = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR}


@dataclass
class LogLedger:
    """What is known of one partition."""

    values: dict[int, bytes] = field(default_factory=dict)
    """By offset: acknowledged, or read."""
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    offsets_of_idempotent: dict[bytes, int] = field(default_factory=dict)

    def learn(self, judge: Judge, where: str, offset: int, value: bytes) -> None:
        known = self.values.setdefault(offset, value)
        if known != value:
            judge.violated("I-5", f"{where} offset {offset}: {value!r} where {known!r} was")
        if value.startswith(b"once") and self.offsets_of_idempotent.setdefault(value, offset) != offset:
            judge.violated("I-10", f"{where}: {value!r} at {self.offsets_of_idempotent[value]} and {offset}")

    def forget(self) -> None:
        self.values.clear()
        self.acknowledged.clear()
        self.offsets_of_idempotent.clear()


class Traffic:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._ledgers = {partition: LogLedger() for partition in world.partitions}

    def ledger(self, partition: tuple[str, int]) -> LogLedger:
        return self._ledgers[partition]

    def power_was_lost(self) -> None:
        for ledger in self._ledgers.values():
            ledger.forget()


@dataclass
class Producer:
    world: "World"
    rng: random.Random
    number: int
    is_idempotent: bool
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    beginnings: int = 0
    sent: int = 0
    batch: tuple[tuple[str, int], list[bytes]] | None = None
    """Not acknowledged yet."""
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.version = self.rng.randint(3, 11)

    async def live(self) -> None:
        while not self.world.is_over:
            try:
                self.wire = await self.world.connect(f"producer-{self.number}")
                self._maybe_forget()
                try:
                    await self._produce_on()
                finally:
                    self.wire.close()
            except LOST:
                # Only idempotence makes it safe to send a batch again whose answer was lost.
                self.batch = self.batch if self.is_idempotent else None
                await self.world.sleep_ms(self.rng.randint(20, 500))

    def _maybe_forget(self) -> None:
        """Another producer may have taken its place, which gets an id of its own."""
        if self.world.plan.puts_metadata_back and self.rng.random() < 0.5:
            self.producer_id, self.batch = NO_PRODUCER_ID, None

    async def _produce_on(self) -> None:
        while not self.world.is_over:
            if self.is_idempotent and self.producer_id == NO_PRODUCER_ID:
                await self._begin_again()
            self.batch = self.batch or self._next_batch()
            if await self._produce(*self.batch):
                self.batch = None
            await self.world.sleep_ms(self.rng.randint(20, 2_000))

    async def _begin_again(self) -> None:
        request = InitProducerIdRequest(transactional_id=None)
        response = await self.wire.call(request, self.rng.randint(0, 5), within_ms=PROMPT_MS)
        error, judge = ErrorCode(response.error_code), self.world.judge
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and judge.counts["failed write"]:
            # The disk is to know of ids before they are given.
            raise ConnectionError(error.name)
        if error is not ErrorCode.NONE:
            judge.violated("answers", f"init producer id was answered {error.name}")
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        self.beginnings += 1
        judge.producer_id_given(self.producer_id, f"producer {self.number}, life {self.beginnings}")
        self.sequences.clear()

    def _next_batch(self) -> tuple[tuple[str, int], list[bytes]]:
        word = "once" if self.is_idempotent else "any"
        values = [f"{word} {self.number}/{self.sent + index}".encode() for index in range(self.rng.randint(1, 5))]
        self.sent += len(values)
        return self.rng.choice(self.world.partitions), values

    async def _produce(self, partition: tuple[str, int], values: list[bytes]) -> bool:
        """Whether to go on with another batch."""
        world, (topic, index) = self.world, partition
        records = build_batch(
            [Record(timestamp=world.clock.wall_ms(), key=None, value=value) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.sequences.get(partition, 0) if self.is_idempotent else -1,
        )
        request = ProduceRequest(
            acks=-1 if self.is_idempotent else self.rng.choice([1, -1]),
            timeout_ms=PROMPT_MS,
            topic_data=[
                TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=bytes(records))])
            ],
        )
        response = await self.wire.call(request, self.version, within_ms=2 * PROMPT_MS)
        answer = response.responses[0].partition_responses[0]
        error = ErrorCode(answer.error_code)
        if error in PRODUCER_FORGOTTEN and world.has_lost_power:
            self.producer_id = NO_PRODUCER_ID
            return True
        if error is not ErrorCode.NONE:
            # A log whose sync has failed for another cause than the sync itself syncs again a second later.
            has_waited_for_sync = error is ErrorCode.REQUEST_TIMED_OUT and world.judge.counts["failed write"] > 0
            if error not in PASSING and not has_waited_for_sync:
                world.judge.violated("answers", f"produce to {partition} was answered {error.name}")
            return False
        self.sequences[partition] = self.sequences.get(partition, 0) + len(values)
        if self.wire.incarnation >= world.judge.binding_since:
            self._acknowledged(partition, answer.base_offset, values)
        return True

    def _acknowledged(self, partition: tuple[str, int], base_offset: int, values: list[bytes]) -> None:
        self.world.judge.counts["produced"] += 1
        ledger = self.world.traffic.ledger(partition)
        for offset, value in enumerate(values, base_offset):
            ledger.learn(self.world.judge, str(partition), offset, value)
            ledger.acknowledged[offset] = value


@dataclass
class Reader:
    """Reads one partition from its beginning, again and again."""

    world: "World"
    rng: random.Random
    partition: tuple[str, int]

    def __post_init__(self) -> None:
        self.version = self.rng.randint(4, 12)

    async def live(self) -> None:
        while not self.world.is_over:
            try:
                wire = await self.world.connect(f"reader-{self.partition[1]}")
                try:
                    await self._read_on(wire)
                finally:
                    wire.close()
            except LOST:
                await self.world.sleep_ms(self.rng.randint(20, 500))

    async def _read_on(self, wire: Wire) -> None:
        offset = 0
        while not self.world.is_over:
            offset = await self._read(wire, offset)
            if self.rng.random() < 0.02:
                offset = 0
            await self.world.sleep_ms(self.rng.randint(0, 1_000))

    async def _read(self, wire: Wire, offset: int) -> int:
        """The offset to go on from."""
        judge, ledger = self.world.judge, self.world.traffic.ledger(self.partition)
        must_be_there = [known for known in ledger.acknowledged if known >= offset]
        size = self.rng.choice([1, 1 << 20])
        part = FetchPartition(partition=self.partition[1], fetch_offset=offset, partition_max_bytes=size)
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            topics=[FetchTopic(topic=self.partition[0], partitions=[part])],
        )
        response = await wire.call(request, self.version, within_ms=FETCH_WAIT_MS + PROMPT_MS)
        if wire.incarnation < judge.binding_since or not response.responses:
            return offset
        data = response.responses[0].partitions[0]
        error = ErrorCode(data.error_code)
        if error is not ErrorCode.NONE:
            if error is ErrorCode.OFFSET_OUT_OF_RANGE and self.world.has_lost_power:
                return 0
            if error not in PASSING:
                judge.violated("answers", f"fetch from {self.partition} at {offset} was answered {error.name}")
            return offset
        read = [record for record in records_of(data.records) if record.offset >= offset]
        for expected, record in enumerate(read, offset):
            if record.offset != expected:
                judge.violated("I-9", f"{self.partition}: offset {record.offset} where {expected} was next")
            ledger.learn(judge, str(self.partition), record.offset, bytes(record.value or b""))
        if must_be_there and not read:
            judge.violated("I-5", f"{self.partition}: nothing at {offset} though {must_be_there[0]} is acknowledged")
        judge.counts["records read"] += len(read)
        return offset + len(read)


def records_of(records: Any) -> list[Record]:
    if not records:
        return []
    view = memoryview(records)
    return [
        record
        for position, header in iterate_batches(view)
        for record in iterate_records(view[position : position + header.size_bytes])
    ]

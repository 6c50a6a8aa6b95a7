"""Transactions in the world of one broker: their producers, their markers and their readers (I-21, I-22, I-29).

There is no coordinator: each producer sends the markers of its own transactions, as its coordinator would, until each
has been acknowledged; so the broker verifies nothing. Batches and markers come again when their answers were lost.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.protocol.records.batch import BatchHeader, iterate_batches
from ottla.protocol.records.control import marker_of
from ottla.protocol.records.record import Record, build_batch
from tests.simulation.traffic import PASSING, PROMPT_MS
from tests.simulation.wire import LOST, Wire
from tests.simulation.world import World
from tests.storage.transactional import visible

TOPIC = "payments"
PARTITIONS = 2
FIRST_PRODUCER_ID = 1 << 40
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
NONE = ErrorCode.NONE


@dataclass
class Ledger:
    """What one partition is to show to readers of committed records."""

    decided: dict[bytes, bool] = field(default_factory=dict)
    """Whether the transaction of a value commits; noted before its first marker is sent."""
    offsets: dict[bytes, int] = field(default_factory=dict)
    """Of values that a reader has seen."""


class TransactionalWorld(World):
    """Few groups, and several segments for transactions to lie in. What was acknowledged survives every fault."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        self.ledgers = [Ledger() for _ in range(PARTITIONS)]

    def draw_plan(self, rng: random.Random) -> Any:
        plan = super().draw_plan(rng)
        # Nothing is asked of a coordinator here.
        plan.transacts = False
        plan.members_of_group = [1]
        plan.may_lose_power &= plan.syncs_every_write
        return plan

    def settings(self) -> dict[str, str]:
        return {**super().settings(), "transaction.partition.verification.enable": "false"}

    async def _create_topics(self) -> None:
        await super()._create_topics()
        configs = [CreatableTopicConfig(name="segment.bytes", value="3000")]
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, configs=configs)
        wire = await self.connect("admin")
        response = await wire.call(CreateTopicsRequest(topics=[topic]), 7, within_ms=PROMPT_MS)
        wire.close()
        assert response.topics[0].error_code == NONE, response.topics[0].error_message

    def _lives(self) -> list[Any]:
        return [
            *super()._lives(),
            *(TransactionalProducer(self, self._rng(f"transactions {n}"), n).live() for n in range(3)),
            *(CommittedReader(self, self._rng(f"committed {n}"), n).live() for n in range(PARTITIONS)),
        ]

    async def _clean_up(self) -> None:
        for index, ledger in enumerate(self.ledgers):
            reader = CommittedReader(self, self._rng("auditor"), index)
            seen = await reader.read_all()
            missing = [value for value, commits in ledger.decided.items() if commits and value not in seen]
            if missing:
                self.judge.violated("I-22", f"partition {index}: {missing[:3]} were committed, and are not read")
        await super()._clean_up()


@dataclass
class Client:
    world: TransactionalWorld
    rng: random.Random
    number: int
    wire: Wire | None = None

    async def call(self, request: Any, version: int) -> Any:
        """Again until there is an answer."""
        while True:
            try:
                if self.wire is None or self.wire.is_lost:
                    self.wire = await self.world.connect(f"{type(self).__name__}-{self.number}")
                return await self.wire.call(request, version, within_ms=2 * PROMPT_MS)
            except LOST:
                await self.world.sleep_ms(self.rng.randint(20, 500))

    def hang_up(self) -> None:
        if self.wire is not None:
            self.wire.close()


@dataclass
class TransactionalProducer(Client):
    """One transaction after the other; what it has begun it ends, also when the world is over."""

    epoch: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    sent: int = 0

    def __post_init__(self) -> None:
        self.producer_id = FIRST_PRODUCER_ID + self.number
        # As with transaction.version 2: each end of a transaction raises the epoch.
        self.raises_epoch = self.rng.random() < 0.5

    async def live(self) -> None:
        while not self.world.is_over:
            await self._transaction()
            await self.world.sleep_ms(self.rng.randint(20, 1_000))
        self.hang_up()

    async def _transaction(self) -> None:
        written: dict[int, list[bytes]] = {}
        for _ in range(self.rng.randint(1, 4)):
            index, values = self.rng.randrange(PARTITIONS), self._values()
            await self._write(index, values)
            written.setdefault(index, []).extend(values)
            await self.world.sleep_ms(self.rng.randint(0, 800))
        commits = self.rng.random() < 0.6
        for index, values in written.items():
            self.world.ledgers[index].decided.update(dict.fromkeys(values, commits))
        self.epoch += self.raises_epoch
        for index in written:
            await self._mark(index, commits)
        if self.raises_epoch:
            self.sequences.clear()
        self.world.judge.counts["transactions"] += 1

    def _values(self) -> list[bytes]:
        self.sent += 1
        return [b"%d/%d/%d" % (self.number, self.sent, n) for n in range(self.rng.randint(1, 4))]

    async def _write(self, index: int, values: list[bytes]) -> None:
        now_ms = self.world.clock.wall_ms()
        records = build_batch(
            [Record(timestamp=now_ms, key=None, value=value) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get(index, 0),
            transactional=True,
        )
        data = [PartitionProduceData(index=index, records=bytes(records))]
        topics = [TopicProduceData(name=TOPIC, partition_data=data)]
        request = ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=PROMPT_MS, topic_data=topics)
        while True:
            response = await self.call(request, 11)
            if self._is_done("produce", response.responses[0].partition_responses[0].error_code):
                self.sequences[index] = self.sequences.get(index, 0) + len(values)
                return

    async def _mark(self, index: int, commits: bool) -> None:
        marker = WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            transaction_result=commits,
            topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[index])],
            transaction_version=2 if self.raises_epoch else 0,
        )
        while True:
            response = await self.call(WriteTxnMarkersRequest(markers=[marker]), 2)
            (result,) = response.markers[0].topics[0].partitions
            if self._is_done("a marker", result.error_code):
                return

    def _is_done(self, what: str, error_code: int) -> bool:
        error = ErrorCode(error_code)
        if error is not NONE and error not in PASSING:
            self.world.judge.violated("answers", f"{what} of {self.producer_id} was answered {error.name}")
        return error is NONE


@dataclass
class CommittedReader(Client):
    """Reads one partition from its beginning, again and again; now and then as it lies there."""

    def __post_init__(self) -> None:
        self.version = self.rng.randint(4, 12)

    async def live(self) -> None:
        while not self.world.is_over:
            if self.rng.random() < 0.5:
                await self.read_all()
            else:
                await self._compare_stable_offset()
            await self.world.sleep_ms(self.rng.randint(500, 3_000))
        self.hang_up()

    async def read_all(self) -> set[bytes]:
        """The values of committed transactions (I-21)."""
        judge, ledger = self.world.judge, self.world.ledgers[self.number]
        seen: set[bytes] = set()
        offset = 0
        while True:
            data = await self._fetch(offset, READ_COMMITTED)
            if data is None or not data.records:
                self.hang_up()
                return seen
            records = memoryview(bytes(data.records))
            aborted = {(each.producer_id, each.first_offset) for each in data.aborted_transactions}
            for at, value in visible(records, aborted):
                if value is None or not ledger.decided.get(value):
                    judge.violated("I-21", f"{value!r} at {at} of partition {self.number} is read as committed")
                elif at >= offset:
                    if ledger.offsets.setdefault(value, at) != at:
                        judge.violated("I-22", f"{value!r} is at {ledger.offsets[value]} and at {at}")
                    seen.add(value)
            offset = max(header.next_offset for _, header in iterate_batches(records))

    async def _compare_stable_offset(self) -> None:
        """I-29: the last stable offset is what a look at the whole log says."""
        batches: list[tuple[BatchHeader, Any]] = []
        offset = 0
        while True:
            data = await self._fetch(offset, READ_UNCOMMITTED)
            if data is None:
                return
            records = memoryview(bytes(data.records or b""))
            for position, header in iterate_batches(records):
                if header.base_offset >= offset:
                    batches.append((header, records[position : position + header.size_bytes]))
                    offset = header.next_offset
            if offset >= data.high_watermark:
                break
            if not records:
                return
        expected = _stable_offset(batches, data.high_watermark)
        if data.last_stable_offset != expected:
            self.world.judge.violated(
                "I-29", f"partition {self.number}: stable up to {data.last_stable_offset}, {expected} by its log"
            )
        self.world.judge.counts["stable offset"] += 1

    async def _fetch(self, offset: int, isolation_level: int) -> Any:
        size = self.rng.choice([1, 500, 1 << 20])
        part = FetchPartition(partition=self.number, fetch_offset=offset, partition_max_bytes=size)
        topics = [FetchTopic(topic=TOPIC, partitions=[part])]
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics, isolation_level=isolation_level)
        response = await self.call(request, self.version)
        data = response.responses[0].partitions[0]
        error = ErrorCode(data.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and self.world.plan.may_lose_power:
            # What was read before the power went had not reached the disk.
            return None
        if error is not NONE:
            if error not in PASSING:
                self.world.judge.violated("answers", f"fetch at {offset} was answered {error.name}")
            return None
        if not 0 <= data.last_stable_offset <= data.high_watermark:
            self.world.judge.violated("I-29", f"stable up to {data.last_stable_offset} of {data.high_watermark}")
        return data


def _stable_offset(batches: list[tuple[BatchHeader, Any]], high_watermark: int) -> int:
    """The first offset of the first transaction without a marker below the high watermark."""
    began: dict[int, int] = {}
    for header, batch in batches:
        if header.base_offset >= high_watermark:
            break
        if header.is_control:
            if marker_of(batch) is not None:
                began.pop(header.producer_id, None)
        elif header.is_transactional:
            began.setdefault(header.producer_id, header.base_offset)
    return min(began.values(), default=high_watermark)

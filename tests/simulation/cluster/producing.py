"""Producers: an idempotent one that goes on until every batch is acknowledged, and one that hopes (acks=1)."""

import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.record import Record, build_batch
from tests.histories.events import Acknowledged, Sent
from tests.simulation.cluster.client import PASSING, REQUEST_TIMEOUT_MS, Client, Partition
from tests.simulation.cluster.plan import DELIVERY_TIMEOUT_MS

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

ACKS_ALL = -1
UNKNOWN_OFFSET = -1
NO_PRODUCER_ID = -1
# So many batches a broker remembers of a producer, and so many may be under way together.
IN_FLIGHT_MAX = 5


@dataclass
class Batch:
    partition: Partition
    base_sequence: int
    values: list[str]
    records: bytes
    first_sent_us: int = 0
    deleted_before: int = 0
    """The log start when it was first sent."""


@dataclass
class IdempotentProducer:
    """Sends several batches at once; after any failure those that are not acknowledged go out again, in order."""

    world: "ClusterWorld"
    rng: random.Random
    name: str
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    is_done: bool = False
    waiting: deque[Batch] = field(default_factory=deque)
    """Sent or not, and not acknowledged."""
    next_sequences: dict[Partition, int] = field(default_factory=dict)
    acknowledged_to: dict[Partition, int] = field(default_factory=dict)
    """The end offset of the last batch that was acknowledged."""
    sent: int = 0
    beginnings: int = 0

    def __post_init__(self) -> None:
        self.client = Client(self.world, self.rng, self.name)
        self.version = self.rng.randint(3, 11)

    async def live(self) -> None:
        """Until writing is over and every batch has its answer."""
        while self.waiting or not self.world.writing_is_over:
            try:
                if self.producer_id == NO_PRODUCER_ID:
                    await self._begin()
                self._write_more()
                await self._send_all()
            except OSError:
                self.client.metadata_is_stale()
                await self.world.sleep_ms(self.rng.randint(20, 500))
            else:
                await self.world.sleep_ms(self.rng.randint(5, self.world.plan.produce_every_ms))
        self.is_done = True
        self.client.close()

    async def _begin(self) -> None:
        wire = await self.client.any_broker()
        request = InitProducerIdRequest(transactional_id=None)
        response = await wire.call(request, self.rng.randint(0, 4), within_ms=REQUEST_TIMEOUT_MS)
        error = ErrorCode(response.error_code)
        if error is ErrorCode.NONE:
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
            self.world.judge.producer_id_given(self.producer_id, f"{self.name}#{self.beginnings}")
        else:
            self.world.judge_error(error, f"init producer id of {self.name}")
            raise ConnectionError(error.name)

    def _write_more(self) -> None:
        if self.waiting or self.world.writing_is_over:
            return
        partition = self.rng.choice(self.world.partitions)
        count = self.rng.choice([1, 1, 2, IN_FLIGHT_MAX]) if self._is_known(partition) else 1
        for _ in range(count):
            self.waiting.append(self._next_batch(partition))

    def _is_known(self, partition: Partition) -> bool:
        """Where a producer is new, a broker accepts any first sequence (§13.6.2 e), also that of a batch which has
        overtaken a refused one: only Kafka's clients that wait here are safe. It is new again to a replica that has
        begun its log again at its leader's log start (§14.5.4), once all its batches are deleted. Brokers that forget
        producers forget them partition by partition."""
        is_kept = self.acknowledged_to.get(partition, 0) > self.world.deleted_before(partition)
        return is_kept and not self.world.plan.expires_producers

    def _next_batch(self, partition: Partition) -> Batch:
        values = [f"{self.name}/{self.sent + number}" for number in range(self.rng.randint(1, 4))]
        sequence = self.next_sequences.get(partition, 0)
        for number, value in enumerate(values, self.sent):
            self.world.record(Sent(self.world.now_us, f"{self.name}#{self.beginnings}", *partition, number, value))
        self.sent += len(values)
        self.next_sequences[partition] = sequence + len(values)
        records = batch_of(values, self.world.wall_ms(), self.producer_id, self.producer_epoch, sequence)
        return Batch(partition, sequence, values, records)

    async def _send_all(self) -> None:
        while self.waiting:
            if self._has_waited_too_long():
                self._begin_again()
                return
            partition = self.waiting[0].partition
            wire, _ = await self.client.leader(partition)
            together = list(self.waiting) if self._is_known(partition) else [self.waiting[0]]
            for batch in together:
                if not batch.first_sent_us:
                    batch.first_sent_us = self.world.now_us
                    batch.deleted_before = self.world.deleted_before(batch.partition)
            requests = [produce_request(batch.partition, batch.records, ACKS_ALL) for batch in together]
            calls = [
                self.world.loop.create_task(wire.call(request, self.version, within_ms=REQUEST_TIMEOUT_MS))
                for request in requests
            ]
            failed = False
            for call in calls:
                # All are awaited: what was not answered in this round is sent again, and may be answered DUPLICATE.
                try:
                    response = await call
                except OSError:
                    failed = True
                else:
                    failed = not self._took(response, after_failure=failed) or failed
            if failed:
                self.client.metadata_is_stale()
                await self.world.sleep_ms(self.rng.randint(20, 300))

    def _took(self, response: Any, *, after_failure: bool) -> bool:
        """Whether the first waiting batch is acknowledged by this answer to it."""
        answer = response.responses[0].partition_responses[0]
        error = ErrorCode(answer.error_code)
        self.world.trace.note(self.name, "got answer", error.name, answer.base_offset)
        if after_failure or not self.waiting:
            # Its turn comes again when those before it are written.
            return False
        batch = self.waiting[0]
        if error is ErrorCode.NONE or error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self.waiting.popleft()
            offset = answer.base_offset if error is ErrorCode.NONE else UNKNOWN_OFFSET
            if offset != UNKNOWN_OFFSET:
                self.acknowledged_to[batch.partition] = offset + len(batch.values)
            sequence = (self.producer_id, self.producer_epoch, batch.base_sequence)
            acknowledged(self.world, batch.partition, offset, batch.values, ACKS_ALL, sequence)
            return True
        if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._may_be_deleted(batch):
            self._begin_again()
        elif error not in PASSING:
            self.world.judge_error(error, f"{self.name}: batch {batch.base_sequence} to {batch.partition}")
        return False

    def _may_be_deleted(self, batch: Batch) -> bool:
        """Since it was first sent: a leader that has been started, or has copied the log, finds it nowhere."""
        return self.world.deleted_before(batch.partition) > batch.deleted_before

    def _has_waited_too_long(self) -> bool:
        """Where brokers forget producers, a batch that is sent again later than that is no repetition to them."""
        first_sent_us = self.waiting[0].first_sent_us
        waited_us = self.world.now_us - first_sent_us
        return self.world.plan.expires_producers and first_sent_us > 0 and waited_us > DELIVERY_TIMEOUT_MS * 1000

    def _begin_again(self) -> None:
        """What is waiting stays in doubt."""
        self.world.judge.counts["producers forgotten"] += 1
        self.producer_id = NO_PRODUCER_ID
        self.beginnings += 1
        self.waiting.clear()
        self.acknowledged_to.clear()
        self.next_sequences.clear()


@dataclass
class HopefulProducer:
    """Never sends a record twice, and does not ask for more than the leader's word."""

    world: "ClusterWorld"
    rng: random.Random
    name: str
    sent: int = 0

    def __post_init__(self) -> None:
        self.client = Client(self.world, self.rng, self.name)
        self.version = self.rng.randint(3, 11)

    async def live(self) -> None:
        while not self.world.writing_is_over:
            try:
                await self._produce()
            except OSError:
                self.client.metadata_is_stale()
            await self.world.sleep_ms(self.rng.randint(5, 2 * self.world.plan.produce_every_ms))
        self.client.close()

    async def _produce(self) -> None:
        partition, acks = self.rng.choice(self.world.partitions), self.rng.choice([1, 1, ACKS_ALL])
        wire, _ = await self.client.leader(partition)
        values = [f"{self.name}/{self.sent + number}" for number in range(self.rng.randint(1, 4))]
        for number, value in enumerate(values, self.sent):
            sent = Sent(self.world.now_us, self.name, *partition, number, value, idempotent=False, acks=acks)
            self.world.record(sent)
        self.sent += len(values)
        request = produce_request(partition, batch_of(values, self.world.wall_ms()), acks)
        response = await wire.call(request, self.version, within_ms=REQUEST_TIMEOUT_MS)
        answer = response.responses[0].partition_responses[0]
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.NONE:
            acknowledged(self.world, partition, answer.base_offset, values, acks)
        else:
            self.client.metadata_is_stale()
            self.world.judge_error(error, f"{self.name}: produce to {partition}")


def acknowledged(
    world: "ClusterWorld",
    partition: Partition,
    offset: int,
    values: list[str],
    acks: int,
    sequence: tuple[int, int, int] | None = None,
) -> None:
    """`sequence`: producer id, epoch and first sequence of an idempotent producer."""
    world.judge.counts["acknowledged" if acks == ACKS_ALL else "acknowledged by the leader"] += len(values)
    for number, value in enumerate(values):
        world.record(Acknowledged(world.now_us, value, UNKNOWN_OFFSET if offset < 0 else offset + number))
    if acks == ACKS_ALL and offset != UNKNOWN_OFFSET:
        world.check_is_committed(partition, offset + len(values), values, sequence)


def batch_of(values: list[str], wall_ms: int, producer_id: int = -1, producer_epoch: int = -1, seq: int = -1) -> bytes:
    records = [Record(timestamp=wall_ms, key=None, value=value.encode()) for value in values]
    return bytes(build_batch(records, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=seq))


def produce_request(partition: Partition, records: bytes, acks: int) -> ProduceRequest:
    topic, index = partition
    data = [PartitionProduceData(index=index, records=records)]
    return ProduceRequest(
        acks=acks, timeout_ms=REQUEST_TIMEOUT_MS // 2, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )

"""A dialogue of two transactional producers with one broker, drawn from a seed: mostly what clients do, in any order.

After every request all that is decided is waited for, and the transactions are described: what the coordinators do by
themselves is over then.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.requests import topic
from tests.broker.wire import batch
from tests.differential.connection import Address, Answer
from tests.differential.episode import diverging
from tests.differential.exchange import Asked, Exchange, Pair, compared
from tests.differential.readiness import Barrier, Ranges
from tests.differential.shown import MADE_UP
from tests.differential.world import World

STEPS = 25
PARTITIONS = 2
COMPLETE_WITHIN_S = 10
LOOK_EVERY_S = 0.003
READ_COMMITTED = 1
# Records' timestamps are those of the brokers' clocks in markers, and producer ids are in the batches: the scripts
# compare logs.
WEIGHTS = {
    "initialize": 3,
    "add": 4,
    "verify": 1,
    "add_offsets": 2,
    "produce": 6,
    "commit_offsets": 3,
    "end": 5,
    "end_offset": 2,
    "fetch_offsets": 2,
    "list": 1,
}


@dataclass
class DrawnProducer:
    """What a producer knows of itself; its producer id under the name that both brokers share."""

    transactional_id: str
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """The next one, by producer id, epoch and partition."""


class TransactionDialogue:
    def __init__(
        self, number: int, seed: int, addresses: tuple[Address, Address], barrier: Barrier | None, ranges: Ranges
    ) -> None:
        self._rng = random.Random(f"{seed}/transactions {number}")
        self._world = World(f"e{number}-")
        self._pair = Pair(addresses)
        self._barrier = barrier
        self._ranges = ranges
        self._topic, self._group = self._world.topics[0], self._world.groups[0]
        self._producers = [DrawnProducer(f"e{number}-tx-{name}") for name in "ab"]

    def run(self) -> Iterator[Exchange]:
        try:
            yield self._exchange(CreateTopicsRequest(topics=[topic(self._topic, PARTITIONS)], timeout_ms=30_000), 7)
            if self._barrier is not None:
                self._barrier.wait()
            for _ in range(STEPS):
                for exchange in self._step(self._rng.choice(self._producers)):
                    yield exchange
                    if any(diverging(exchange)):
                        return
        finally:
            self._pair.close()

    def _step(self, producer: DrawnProducer) -> Iterator[Exchange]:
        kind = self._rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if kind == "produce" and producer.producer_id < 0:
            # Kafka takes transactional batches of no producer.
            kind = "initialize"
        request, version = getattr(self, f"_{kind}")(producer)
        exchange = self._exchange(request, version)
        self._learn(producer, exchange)
        yield exchange
        yield self._described()

    def _described(self) -> Exchange:
        """When no transaction is decided and not complete."""
        request = DescribeTransactionsRequest(transactional_ids=[each.transactional_id for each in self._producers])
        deadline = time.monotonic() + COMPLETE_WITHIN_S
        while True:
            exchange = self._exchange(request, 0)
            outcomes = exchange.ours, exchange.theirs
            states = [
                state.transaction_state
                for outcome in outcomes
                if isinstance(outcome, Answer)
                for state in outcome.message.transaction_states
            ]
            if not any(state.startswith("Prepare") for state in states) or time.monotonic() > deadline:
                return exchange
            time.sleep(LOOK_EVERY_S)

    def _exchange(self, request: Any, version: int) -> Exchange:
        asked = Asked(request, version)
        self._pair.send(asked, self._world)
        return compared(asked, self._pair.outcomes(asked), self._world)

    def _learn(self, producer: DrawnProducer, exchange: Exchange) -> None:
        request = exchange.asked.request
        if not isinstance(exchange.ours, Answer) or exchange.differences:
            return
        answer = exchange.ours.message
        if isinstance(request, InitProducerIdRequest | EndTxnRequest) and answer.producer_id >= 0:
            producer.producer_id = self._world.ids.shared(0, "producer_id", answer.producer_id)
            producer.epoch = answer.producer_epoch
        elif isinstance(request, ProduceRequest):
            (partition,) = answer.responses[0].partition_responses
            if not partition.error_code:
                place = self._place_of(producer, partition.index)
                producer.sequences[place] = producer.sequences.get(place, 0) + 1

    # What is drawn.

    def _version(self, key: int, highest: int = 99) -> int:
        low, high = self._ranges[key]
        return self._rng.randint(low, min(high, highest))

    def _drawn_pair(self, producer: DrawnProducer) -> tuple[int, int]:
        rng, pair = self._rng, (producer.producer_id, producer.epoch)
        if rng.random() < 0.9:
            return pair
        return rng.choice(((pair[0], pair[1] + 1), (pair[0], pair[1] - 1), (MADE_UP, 0), (pair[0], 32767)))

    @staticmethod
    def _place_of(producer: DrawnProducer, index: int) -> tuple[int, int, int]:
        return producer.producer_id, producer.epoch, index

    def _drawn_topics(self) -> list[AddPartitionsToTxnTopic]:
        indexes = self._rng.choice(([0], [0], [1], [0, 1], [0, 7]))
        topics = [AddPartitionsToTxnTopic(name=self._topic, partitions=indexes)]
        if self._rng.random() < 0.05:
            topics.append(AddPartitionsToTxnTopic(name="nowhere", partitions=[0]))
        return topics

    def _initialize(self, producer: DrawnProducer) -> tuple[Any, int]:
        rng = self._rng
        has_pair = rng.random() < 0.3
        pid, epoch = self._drawn_pair(producer) if has_pair else (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=producer.transactional_id,
            transaction_timeout_ms=rng.choice((60_000, 60_000, 60_000, 0, 900_001)),
            producer_id=pid,
            producer_epoch=epoch,
        )
        return request, rng.randint(3, 5) if has_pair else self._version(22)

    def _add(self, producer: DrawnProducer) -> tuple[Any, int]:
        pid, epoch = self._drawn_pair(producer)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=pid,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=self._drawn_topics(),
        )
        return request, self._version(24, 3)

    def _verify(self, producer: DrawnProducer) -> tuple[Any, int]:
        pid, epoch = self._drawn_pair(producer)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=producer.transactional_id,
            producer_id=pid,
            producer_epoch=epoch,
            verify_only=self._rng.random() < 0.7,
            topics=self._drawn_topics(),
        )
        return AddPartitionsToTxnRequest(transactions=[transaction]), self._rng.randint(4, 5)

    def _add_offsets(self, producer: DrawnProducer) -> tuple[Any, int]:
        pid, epoch = self._drawn_pair(producer)
        request = AddOffsetsToTxnRequest(
            transactional_id=producer.transactional_id, producer_id=pid, producer_epoch=epoch, group_id=self._group
        )
        return request, self._version(25)

    def _produce(self, producer: DrawnProducer) -> tuple[Any, int]:
        rng = self._rng
        pid, epoch = self._drawn_pair(producer)
        index = rng.randrange(PARTITIONS)
        sequence = producer.sequences.get(self._place_of(producer, index), 0)
        if rng.random() < 0.15:
            sequence = max(0, sequence + rng.choice((-1, 1, 5)))
        is_transactional = rng.random() < 0.95
        described = {"producer_epoch": epoch, "base_sequence": sequence, "transactional": is_transactional}
        records = self._world.ids.records(pid, lambda real: batch(b"x", producer_id=real, **described))
        partition = PartitionProduceData(index=index, records=records)
        request = ProduceRequest(
            transactional_id=producer.transactional_id if is_transactional else None,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=self._topic, partition_data=[partition])],
        )
        return request, rng.choice((9, 10, 11, 11, 11, 12, 12))

    def _commit_offsets(self, producer: DrawnProducer) -> tuple[Any, int]:
        pid, epoch = self._drawn_pair(producer)
        partitions = [
            TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=self._rng.randrange(100), committed_metadata=""
            )
            for index in self._rng.choice(([0], [0, 1], [7]))
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=producer.transactional_id,
            group_id=self._group,
            producer_id=pid,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self._topic, partitions=partitions)],
        )
        version = self._version(28)
        if version >= 3 and self._rng.random() < 0.1:
            request.generation_id, request.member_id = 1, "stranger"
        return request, version

    def _end(self, producer: DrawnProducer) -> tuple[Any, int]:
        pid, epoch = self._drawn_pair(producer)
        request = EndTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=pid,
            producer_epoch=epoch,
            committed=self._rng.random() < 0.6,
        )
        return request, self._version(26)

    def _end_offset(self, _producer: DrawnProducer) -> tuple[Any, int]:
        partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(PARTITIONS)]
        topics = [ListOffsetsTopic(name=self._topic, partitions=partitions)]
        return ListOffsetsRequest(replica_id=-1, isolation_level=READ_COMMITTED, topics=topics), 7

    def _fetch_offsets(self, _producer: DrawnProducer) -> tuple[Any, int]:
        groups = [OffsetFetchRequestGroup(group_id=self._group, topics=None)]
        return OffsetFetchRequest(groups=groups, require_stable=self._rng.random() < 0.5), 8

    def _list(self, _producer: DrawnProducer) -> tuple[Any, int]:
        rng = self._rng
        request = ListTransactionsRequest(
            state_filters=rng.choice(([], [], ["Ongoing"], ["Empty", "CompleteAbort"], ["Nonsense"])),
            duration_filter=rng.choice((-1, 3_600_000)),
            transactional_id_pattern=rng.choice((None, f"{self._world.prefix}.*a", "(")),
        )
        return request, self._version(66)

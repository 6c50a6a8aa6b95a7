"""A transactional producer of a script: its id and epoch as the broker gave them, and its requests."""

from collections.abc import Iterator
from typing import Any

from ottla.broker.handlers.find_coordinator import TRANSACTION
from ottla.coordinator.runtime.hashing import partition_for
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.wire import batch
from tests.differential.script import Script, joined
from tests.differential.shown import code, transaction_states

STATE_PARTITIONS = 4
STATE_TOPIC = "__transaction_state"
NO_PAIR = (-1, -1)

Places = dict[str, list[int]]
"""Partitions, by topic."""


class ScriptedProducer:
    """Each request takes `producer_id` and `epoch` in place of those that were given."""

    def __init__(self, script: Script, name: str) -> None:
        self._script = script
        self.transactional_id = script.own(name)
        self.producer_id, self.epoch = NO_PAIR
        found = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[self.transactional_id])
        script.until(lambda: not script.look(found, 4).coordinators[0].error_code)

    # Requests to the coordinator.

    def initialize(
        self, *, version: int = 5, timeout_ms: int = 60_000, pair: tuple[int, int] = NO_PAIR, name: str | None = None
    ) -> Any:
        """As a producer that starts; with a pair as one that wants its next epoch. `name` is another id."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id if name is None else name,
            transaction_timeout_ms=timeout_ms,
            producer_id=pair[0],
            producer_epoch=pair[1],
        )
        answer = self._script.ask(f"InitProducerId v{version} {self._named(pair)}", request, version, self._pair)
        if answer is not None and not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer

    def add(self, places: Places, *, version: int = 3, **other: int) -> None:
        pid, epoch = self._with(other)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=pid,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=self._topics(places),
        )
        what = f"AddPartitionsToTxn v{version} {self._named((pid, epoch))} {self._places(places)}"
        self._script.ask(what, request, version, lambda answer: _added(answer.results_by_topic_v3_and_below))

    def add_as_broker(self, places: Places, *, version: int = 5, verify_only: bool = False, **other: int) -> None:
        """As the leader of a partition asks."""
        pid, epoch = self._with(other)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=pid,
            producer_epoch=epoch,
            verify_only=verify_only,
            topics=self._topics(places),
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        verb = "verify" if verify_only else "add"
        what = f"AddPartitionsToTxn v{version} {verb} {self._named((pid, epoch))} {self._places(places)}"
        self._script.ask(what, request, version, _added_by_broker)

    def add_offsets(self, group: str, *, version: int = 4, **other: int) -> None:
        pid, epoch = self._with(other)
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id, producer_id=pid, producer_epoch=epoch, group_id=group
        )
        what = f"AddOffsetsToTxn v{version} {self._named((pid, epoch))} {group!r}"
        self._script.ask(what, request, version, lambda answer: code(answer.error_code))

    def end(self, *, commit: bool, version: int = 4, awaits_markers: bool = True, **other: int) -> None:
        """Goes on when the markers are written, and with the pair of the answer."""
        pid, epoch = self._with(other)
        request = EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=pid, producer_epoch=epoch, committed=commit
        )
        what = f"EndTxn v{version} {'commit' if commit else 'abort'} {self._named((pid, epoch))}"
        answer = self._script.ask(what, request, version, self._pair if version >= 5 else _code)
        if answer is not None and answer.producer_id >= 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        if awaits_markers:
            self.until_complete()

    # Records.

    def produce(
        self,
        topic: str,
        *values: str,
        sequence: int = 0,
        index: int = 0,
        version: int = 11,
        transactional: bool = True,
        name: str | None = None,
        **other: int,
    ) -> None:
        pid, epoch = self._with(other)
        records = batch(
            *(value.encode() for value in values),
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        transactional_id = (self.transactional_id if name is None else name) if transactional else None
        what = f"Produce v{version} {'' if transactional else 'plain '}{self._named((pid, epoch))} from {sequence}"
        self.send_batches({(topic, index): records}, version=version, what=what, transactional_id=transactional_id)

    def send_batches(
        self, records: dict[tuple[str, int], bytes], *, version: int, what: str, transactional_id: str | None
    ) -> None:
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(
                    name=self._script.own(topic), partition_data=[PartitionProduceData(index=index, records=each)]
                )
                for (topic, index), each in records.items()
            ],
        )
        self._script.ask(what, request, version, lambda answer: joined(sorted(_produced(answer))))

    # What is known of it.

    def is_refused(self) -> bool:
        """Whether its coordinator cannot store its id. Makes no line."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        return bool(self._script.look(request, 5).error_code)

    def describe(self) -> None:
        self._script.ask("DescribeTransactions", self._describing(), 0, self._described)

    @property
    def state(self) -> str:
        """Empty where the coordinator does not know it."""
        return str(self._script.look(self._describing(), 0).transaction_states[0].transaction_state)

    def until_complete(self) -> None:
        self._script.until(lambda: not self.state.startswith("Prepare"))

    def until(self, state: str) -> None:
        self._script.until(lambda: self.state == state)

    def until_missing(self, topic: str, index: int) -> None:
        """All of its markers are written but that of this partition, which is refused."""
        missing = [(self._script.own(topic), [index])]

        def found() -> bool:
            (state,) = self._script.look(self._describing(), 0).transaction_states
            return [(each.topic, each.partitions) for each in state.topics] == missing

        self._script.until(found)

    def log(self) -> None:
        """A line for each of its records in `__transaction_state`."""
        script = self._script
        records = script.records(STATE_TOPIC, partition_for(self.transactional_id, STATE_PARTITIONS))
        for line in transaction_states(script.names, records, self.transactional_id):
            script.note(f"{STATE_TOPIC}: {line}")

    def _describing(self) -> DescribeTransactionsRequest:
        return DescribeTransactionsRequest(transactional_ids=[self.transactional_id])

    def _described(self, answer: Any) -> str:
        (found,) = answer.transaction_states
        pair = self._script.names.pair(found.producer_id, found.producer_epoch)
        topics = [f"{topic.topic}{sorted(topic.partitions)}" for topic in found.topics]
        started = "started" if found.transaction_start_time_ms > 0 else "not started"
        return (
            f"{code(found.error_code)} {found.transaction_state!r} {pair} {found.transaction_timeout_ms} ms {started} "
            f"{joined(sorted(topics))}"
        )

    # How it is written down.

    def _with(self, other: dict[str, int]) -> tuple[int, int]:
        assert other.keys() <= {"producer_id", "epoch"}, other
        return other.get("producer_id", self.producer_id), other.get("epoch", self.epoch)

    def _named(self, pair: tuple[int, int]) -> str:
        return self._script.names.pair(*pair)

    def _pair(self, answer: Any) -> str:
        return f"{code(answer.error_code)} {self._script.names.pair(answer.producer_id, answer.producer_epoch)}"

    def _topics(self, places: Places) -> list[AddPartitionsToTxnTopic]:
        return [AddPartitionsToTxnTopic(name=self._real(name), partitions=indexes) for name, indexes in places.items()]

    def _real(self, topic: str) -> str:
        return topic if topic.startswith("__") else self._script.own(topic)

    @staticmethod
    def _places(places: Places) -> str:
        return ",".join(f"{name}{indexes}" for name, indexes in places.items())


def _code(answer: Any) -> str:
    return code(answer.error_code)


def _added(results: Any) -> str:
    return joined(
        sorted(
            f"{topic.name}-{each.partition_index} {code(each.partition_error_code)}"
            for topic in results
            for each in topic.results_by_partition
        )
    )


def _added_by_broker(answer: Any) -> str:
    found = [_added(each.topic_results) for each in answer.results_by_transaction]
    return f"{code(answer.error_code)} {joined(found)}"


def _produced(answer: Any) -> Iterator[str]:
    for topic in answer.responses:
        for each in topic.partition_responses:
            offset = f" at {each.base_offset}" if each.base_offset >= 0 else ""
            yield f"{topic.name}-{each.index} {code(each.error_code)}{offset}"

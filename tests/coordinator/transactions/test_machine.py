"""Random lives of transactional ids: requests, append results, markers, timers and failovers in any order.

What clients were answered must fit together, whatever happens: pairs only rise, a decision is never changed, one
completion follows each, and the log replayed gives the state that is served (I-22).
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.coordinator.runtime.appends import IN_DOUBT
from ottla.coordinator.runtime.effects import AppendFailed, CoordinatorRecord
from ottla.coordinator.transactions.entry import TransactionMetadata, TransactionState
from ottla.coordinator.transactions.events import (
    AbortTimedOutTransactions,
    ExpireTransactionalIds,
    MarkersWritten,
)
from ottla.coordinator.transactions.records import (
    build_transaction_key,
    build_transaction_value,
    parse_transaction_key,
    parse_transaction_value,
)
from ottla.protocol.errors import ErrorCode
from tests.coordinator.transactions.harness import Producer, TransactionLog

IDS = ("a", "b")
PRODUCERS = (("a", False), ("a", True), ("b", True))
ERRORS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR)
DECIDED = {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}
COMPLETE_OF = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}

producers = st.integers(0, len(PRODUCERS) - 1)


class Transactions(RuleBasedStateMachine):
    @initialize(level=st.sampled_from([0, 1, 2]), instant_log=st.booleans())
    def start(self, level: int, instant_log: bool) -> None:
        self.log = TransactionLog(level=level, transactional_id_expiration_ms=30_000)
        self.log.hold_appends = not instant_log
        self.producers = [Producer(self.log, name, raises_epoch=raises) for name, raises in PRODUCERS]
        # Appends that timed out: their records stay in the log.
        self.in_doubt: set[int] = set()

    # What clients do

    @rule(index=producers, with_pair=st.booleans())
    def initialize_producer(self, index: int, with_pair: bool) -> None:
        producer = self.producers[index]
        before = self._pair(producer.transactional_id)
        error = producer.initialize(timeout_ms=10_000, with_pair=with_pair and producer.producer_id >= 0)
        if error is ErrorCode.NONE and before is not None:
            assert producer.pair >= before, "a pair that was handed out is less than an earlier one"

    @rule(index=producers, partition=st.integers(0, 3))
    def add(self, index: int, partition: int) -> None:
        producer = self.producers[index]
        if producer.producer_id < 0:
            producer.initialize(timeout_ms=10_000)
        producer.add(partition)

    @rule(index=producers, commit=st.booleans())
    def transact(self, index: int, commit: bool) -> None:
        """A whole transaction, as far as it gets."""
        producer = self.producers[index]
        if producer.add(0) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
            producer.initialize(timeout_ms=10_000)
            producer.add(0)
        producer.end(commit=commit)

    @rule(index=producers, commit=st.booleans())
    def end(self, index: int, commit: bool) -> None:
        self.producers[index].end(commit=commit)

    @rule(name=st.sampled_from(IDS))
    def exhaust(self, name: str) -> None:
        """Bring the epoch near its end, as many transactions would."""
        entry = self.log.partition.shard.context.entries.get(name)
        if entry is None or entry.pending is not None or not entry.metadata.is_idle:
            return
        raised = entry.metadata._replace(
            producer_epoch=max(entry.metadata.producer_epoch, 32765), state=TransactionState.EMPTY, start_ms=-1
        )
        for producer in self.producers:
            if producer.pair == (entry.metadata.producer_id, entry.metadata.producer_epoch):
                producer.producer_epoch = raised.producer_epoch
        entry.metadata = raised
        value = build_transaction_value(raised, min(self.log.level, 1))
        batch = self.log.add_to_log((CoordinatorRecord(build_transaction_key(name), value),))
        batch.committed = True

    # What happens to the log and in time

    @rule()
    def complete_append(self) -> None:
        if self.log.held:
            self.log.complete_append()

    @rule(error=st.sampled_from(ERRORS))
    def fail_append(self, error: ErrorCode) -> None:
        certain = self.log.held.keys() - self.in_doubt
        if not certain:
            return
        append_id = max(certain)
        if error in IN_DOUBT:
            self.in_doubt.add(append_id)
        else:
            self.log.log.remove(self.log.held.pop(append_id))
        self.log.send(AppendFailed(append_id, error))

    @rule(data=st.data())
    def write_markers(self, data: st.DataObject) -> None:
        if not self.log.markers:
            return
        index = data.draw(st.integers(0, len(self.log.markers) - 1))
        asked = self.log.markers[index]
        partition = data.draw(st.sampled_from(asked.partitions))
        entry = self.log.partition.shard.entries.get(asked.transactional_id)
        is_late = entry is not None and not entry.is_pending(asked.number)
        missing = set() if entry is None else set(entry.missing_markers)
        self.log.send(MarkersWritten(asked.transactional_id, asked.number, frozenset({partition})))
        if entry is not None and is_late:
            assert entry.missing_markers == missing, "a marker of an earlier transaction counted"

    @rule(duration_ms=st.sampled_from([100, 5_000, 11_000, 40_000]))
    def advance(self, duration_ms: int) -> None:
        self.log.advance(duration_ms)

    @rule()
    def abort_timed_out(self) -> None:
        self.log.send(AbortTimedOutTransactions())

    @rule()
    def expire(self) -> None:
        self.log.send(ExpireTransactionalIds())

    @rule(loses_tail=st.booleans())
    def fail_over(self, loses_tail: bool) -> None:
        """The new leader has all that is committed, and what else was appended or not."""
        self.log.resign()
        if loses_tail:
            self.log.log = [batch for batch in self.log.log if batch.committed]
        self.log.elect()
        self.in_doubt.clear()

    # What must hold

    @invariant()
    def served_state_is_that_of_the_log(self) -> None:
        committed: dict[str, TransactionMetadata] = {}
        for name, metadata in self._committed_records():
            if metadata is None:
                committed.pop(name, None)
            else:
                committed[name] = metadata
        entries = self.log.partition.shard.entries
        assert {name: entry.metadata for name, entry in entries.items() if entry.exists_in_log} == committed

    @invariant()
    def decisions_are_final_and_completed_once(self) -> None:
        last: dict[str, TransactionMetadata | None] = {}
        for name, metadata in self._committed_records():
            before = last.get(name)
            if before is not None and before.state in DECIDED:
                assert metadata is not None, "a decided transaction expired"
                assert metadata.state is COMPLETE_OF[before.state], "a decision was changed"
            elif metadata is not None:
                assert metadata.state not in COMPLETE_OF.values(), "a completion without a decision"
            last[name] = metadata

    @invariant()
    def epochs_never_go_back(self) -> None:
        pairs: dict[str, tuple[int, int]] = {}
        for name, metadata in self._committed_records():
            if metadata is None:
                continue
            pair = metadata.producer_id, metadata.producer_epoch
            assert pair >= pairs.get(name, pair), f"{name} went back from {pairs.get(name)} to {pair}"
            pairs[name] = pair

    @invariant()
    def markers_are_those_of_durable_decisions(self) -> None:
        entries = self.log.partition.shard.entries
        for asked in self.log.markers:
            entry = entries.get(asked.transactional_id)
            if entry is not None and entry.is_pending(asked.number) and entry.missing_markers:
                assert entry.metadata.state in DECIDED
                assert asked.commit == (entry.metadata.state is TransactionState.PREPARE_COMMIT)

    def teardown(self) -> None:
        """Once faults stop, every id can be used again."""
        if not hasattr(self, "log"):
            return
        self.log.hold_appends = False
        while self.log.held:
            self.log.complete_append()
        for _ in range(3):
            self.log.acknowledge_markers()
            self.log.advance(100)
        for name in IDS:
            producer = Producer(self.log, name)
            if producer.initialize() is ErrorCode.CONCURRENT_TRANSACTIONS:
                self.log.acknowledge_markers()
                assert producer.initialize() is ErrorCode.NONE
            assert producer.add(0) is ErrorCode.NONE
            assert producer.commit() is ErrorCode.NONE

    # Helpers

    def _committed_records(self) -> list[tuple[str, TransactionMetadata | None]]:
        found = []
        for batch in self.log.log:
            if batch.committed:
                for record in batch.records:
                    metadata = None if record.value is None else parse_transaction_value(record.value)
                    found.append((parse_transaction_key(record.key), metadata))
        return found

    def _pair(self, name: str) -> tuple[int, int] | None:
        entry = self.log.partition.shard.entries.get(name)
        return None if entry is None else (entry.metadata.producer_id, entry.metadata.producer_epoch)


TestTransactions: Any = Transactions.TestCase
TestTransactions.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)

"""The states of producers, packed and not, beside a dict: whatever is done in whatever order, both hold the same."""

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.protocol.records.batch import NO_SEQUENCE
from ottla.storage import producer_pages, producer_table
from ottla.storage.producer_entry import (
    ProducerBatch,
    ProducerState,
    pack_batches,
    pack_entry,
    unpack_state,
)
from ottla.storage.producer_snapshot import ENTRY
from ottla.storage.producer_table import ProducerTable

INT16, INT32, INT64 = (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1
ids = st.one_of(st.integers(0, 12), st.integers(0, INT64))
offsets = st.integers(0, INT64)
timestamps = st.one_of(st.integers(-1, 3), st.integers(-INT64 - 1, INT64))


@st.composite
def batches(draw: st.DrawFn) -> ProducerBatch:
    """Those of offset commits have no sequence, and of some the timestamp is not the last that was seen."""
    first_offset = draw(st.integers(0, INT64 - INT32))
    sequences = draw(st.one_of(st.just((-1, -1)), st.tuples(st.integers(0, INT32), st.integers(0, INT32))))
    last_offset = first_offset + draw(st.one_of(st.integers(0, 3), st.integers(0, INT32)))
    return ProducerBatch(*sequences, first_offset, last_offset, draw(timestamps))


states = st.builds(
    ProducerState,
    epoch=st.integers(0, INT16),
    batches=st.lists(batches(), max_size=5).map(tuple),
    last_timestamp=timestamps,
    coordinator_epoch=st.integers(-1, INT32),
    transaction_first_offset=st.one_of(st.just(-1), offsets),
    seen_ms=st.integers(0, 100),
)


@given(ids, states)
def test_packed_state_is_what_it_was(producer_id: int, state: ProducerState) -> None:
    assert unpack_state(pack_entry(producer_id, state), state.seen_ms, pack_batches(state)) == state


@given(st.integers(0, 3), st.integers(0, INT32), st.integers(0, INT64))
def test_only_batch_of_a_producer_is_packed_in_its_entry(delta: int, sequence: int, timestamp: int) -> None:
    last_sequence = (sequence + delta) & INT32
    state = ProducerState(0, (ProducerBatch(sequence, last_sequence, 7, 7 + delta, timestamp),), timestamp, seen_ms=5)

    assert pack_batches(state) is None
    assert unpack_state(pack_entry(9, state), 5) == state


def test_a_batch_without_sequence_numbers_is_whole_in_its_entry() -> None:
    """As a coordinator writes offsets of a transaction. Its replicas remember the same of it after a restart."""
    batch = ProducerBatch(NO_SEQUENCE, NO_SEQUENCE, first_offset=4, last_offset=6, timestamp=7)
    state = ProducerState(1, (batch,), last_timestamp=7, seen_ms=5)

    assert pack_batches(state) is None
    assert unpack_state(pack_entry(9, state), 5) == state


class Tables(RuleBasedStateMachine):
    """With pages of four, and two producers at hand."""

    @initialize()
    def begin(self) -> None:
        self.patches = [
            patch.object(producer_pages, "PRODUCERS_PER_PAGE", 4),
            patch.object(producer_pages, "PAGES_PER_SLICE", 2),
            patch.object(producer_table, "RECENT_MAX", 2),
            patch.object(producer_table, "PACKED_AT_ONCE", 1),
        ]
        for each in self.patches:
            each.start()
        self.table, self.model = ProducerTable(), dict[int, ProducerState]()
        self.copies: list[tuple[ProducerTable, dict[int, ProducerState]]] = []

    def teardown(self) -> None:
        for each in self.patches:
            each.stop()

    @rule(producer_id=ids, state=states)
    def write(self, producer_id: int, state: ProducerState) -> None:
        before = self.table.recent.get(producer_id) or self.table.take_packed(producer_id)
        assert before == self.model.get(producer_id)
        self.table.recent[producer_id] = self.model[producer_id] = state
        if len(self.table.recent) > self.table.recent_max:
            self.table.pack_oldest()
            assert len(self.table.recent) == 2

    @rule(first=st.integers(0, 20), count=st.integers(1, 12), state=states)
    def write_many(self, first: int, count: int, state: ProducerState) -> None:
        for producer_id in range(first, first + count):
            self.write(producer_id, state)

    @rule(latest_ms=st.integers(0, 100), kept=st.sets(st.integers(0, 12)), another=ids)
    def expire(self, latest_ms: int, kept: set[int], another: int) -> None:
        """Something is written between two slices."""
        gone = {key for key, state in self.model.items() if state.seen_ms <= latest_ms and key not in kept}
        expiry = self.table.expire(latest_ms, kept, None)
        expired = expiry.expired
        while expiry.next_id is not None:
            if another in self.model and another not in gone:
                self.write(another, self.model[another])
            expiry = self.table.expire(latest_ms, kept, expiry.next_id)
            expired += expiry.expired
        assert sorted(expired) == sorted(gone)
        for producer_id in gone:
            del self.model[producer_id]

    @rule()
    def copy(self) -> None:
        self.copies.append((self.table.copy(), dict(self.model)))

    @rule()
    def go_on_with_a_copy(self) -> None:
        """The other one stays what it is."""
        copied = self.table.copy()
        self.copies.append((self.table, dict(self.model)))
        self.table = copied

    @rule()
    def load(self) -> None:
        """From its entries, as from a snapshot."""
        entries = memoryview(b"".join(self.table.entries()))
        self.table = ProducerTable.of_entries(entries, 50)
        self.model = {
            producer_id: unpack_state(pack_entry(producer_id, state), 50) for producer_id, state in self.model.items()
        }

    @invariant()
    def holds_the_same(self) -> None:
        if not hasattr(self, "table"):
            return
        for table, model in [(self.table, self.model), *self.copies]:
            assert dict(table) == model
            assert len(table) == len(model)
            entries = b"".join(table.entries())
            assert sorted(ENTRY.iter_unpack(entries)) == sorted(
                ENTRY.unpack(pack_entry(producer_id, state)) for producer_id, state in model.items()
            )
            given = {producer_id for producer_id in model if producer_id < producer_table.GIVEN_IDS_END}
            assert table.highest_given_id == max(given, default=-1)
            several = {producer_id for producer_id, state in model.items() if len(state.batches) > 1}
            assert several <= set(table.ids_with_batches())
        assert self.table.find(3) == self.model.get(3)


TestTables = Tables.TestCase
TestTables.settings = settings(max_examples=60, stateful_step_count=30)

"""Transactions in a log: where readers of committed records stop, and what they leave out (§39 to §44)."""

from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.protocol.errors import InvalidProducerEpoch, TransactionCoordinatorFenced
from ottla.protocol.records.batch import crc_is_valid, parse_batch_header
from ottla.protocol.records.control import TransactionMarker, build_marker, marker_of, parse_marker
from ottla.storage.indexes import build_transaction_index, parse_transaction_index
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.producer_state import ProducerStateManager
from ottla.storage.segment import OFFSET_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from ottla.storage.transactions import AbortedTxn, Transactions
from tests.fakes.disk import FakeDisk, Loss
from tests.storage.support import NOW, append, batch, new_log, open_directory, reopened
from tests.storage.transactional import ABORT, COMMIT, committed, copy, end, write

ABORTED_ENTRY = bytes.fromhex("0000 0000000000000007 000000000000000a 0000000000000014 0000000000000015")
COMMIT_MARKER = bytes.fromhex(
    "000000000000002a 00000042 00000009 02 d42be584 0030 00000000 00000000000003e8 00000000000003e8"
    "0000000000000007 0003 ffffffff 00000001 20 00 00 00 08 0000 0001 0c 0000 00000005 00"
)


@pytest.fixture
def log() -> Log:
    return new_log(FakeDisk())


def test_a_marker_has_kafkas_bytes() -> None:
    """Offset 42, leader epoch 9, time 1000, producer 7, epoch 3, coordinator epoch 5."""
    built = build_marker(TransactionMarker(True, 5), producer_id=7, producer_epoch=3, timestamp=1000, leader_epoch=9)
    built[0:8] = (42).to_bytes(8, "big")

    assert bytes(built) == COMMIT_MARKER
    assert marker_of(memoryview(COMMIT_MARKER)) == TransactionMarker(True, 5)
    assert crc_is_valid(built, 0, parse_batch_header(built))


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b""), (b"\0", b"\0" * 6), (b"\0\0\0\1", None), (b"\0\0\0\1", b"\0"), (b"\0\0\0\2", b"\0" * 6)],
)
def test_other_control_records_are_no_markers(key: bytes | None, value: bytes | None) -> None:
    assert parse_marker(key, value) is None


def test_entry_of_an_index_has_kafkas_bytes() -> None:
    entry = AbortedTxn(producer_id=7, first_offset=10, last_offset=20, last_stable_offset=21)

    assert build_transaction_index([entry]) == ABORTED_ENTRY
    assert parse_transaction_index(ABORTED_ENTRY, 0) == [entry]
    assert parse_transaction_index(ABORTED_ENTRY + b"torn", 0) == [entry]
    assert parse_transaction_index(ABORTED_ENTRY, 21) is None, "its marker lies before the segment"
    assert parse_transaction_index(ABORTED_ENTRY * 2, 0) is None, "offsets rise"
    assert parse_transaction_index(b"\0\1" + ABORTED_ENTRY[2:], 0) is None


@pytest.mark.parametrize("rolls", [False, True])
def test_index_survives_a_loss_of_power_after_a_clean_stop(rolls: bool) -> None:
    """A segment whose index is missing has none: nothing would make it again."""
    disk = FakeDisk()
    directory = open_directory(disk)
    log = directory.create_log("t", 0, bytes(16), LogConfig(), now_wall_ms=NOW)
    write(log, "a", producer=7)
    end(log, producer=7, commit=ABORT)
    if rolls:
        log.roll()
    directory.close()

    after = open_directory(FakeDisk.after(disk.journal, Loss.UNSYNCED))

    assert after.was_closed_cleanly
    assert committed(after.logs["t", 0], 0, high_watermark=2) == []


@pytest.mark.parametrize("loss", [Loss.NOTHING, Loss.UNSYNCED])
@pytest.mark.parametrize("rolls", [False, True])
def test_index_is_there_after_a_crash_behind_the_recovery_point(rolls: bool, loss: Loss) -> None:
    disk = FakeDisk()
    directory = open_directory(disk)
    log = directory.create_log("t", 0, bytes(16), LogConfig(), now_wall_ms=NOW)
    write(log, "a", producer=7)
    end(log, producer=7, commit=ABORT)
    if rolls:
        log.roll()
    log.flush()
    directory.recovery_point_checkpoint().write()

    after = open_directory(FakeDisk.after(disk.journal, loss))

    assert committed(after.logs["t", 0], 0, high_watermark=2) == []


@pytest.mark.parametrize(("loss", "seeds"), [(Loss.NOTHING, 1), (Loss.SOME, 8)])
@pytest.mark.parametrize("rolls", [False, True])
def test_index_survives_any_crash_while_it_is_made_again(rolls: bool, loss: Loss, seeds: int) -> None:
    """Another index was lost, so that the segment is recovered; then the broker stops in an orderly way."""
    disk = FakeDisk()
    directory = open_directory(disk)
    log = directory.create_log("t", 0, bytes(16), LogConfig(), now_wall_ms=NOW)
    write(log, "a", producer=7)
    end(log, producer=7, commit=ABORT)
    index = log.segments[0].path(OFFSET_INDEX_SUFFIX)
    if rolls:
        log.roll()
    append(log, batch("b"))
    log.flush()
    directory.close()
    disk.remove(index)
    disk.sync_directory(index.parent)
    before = len(disk.journal)
    open_directory(disk).close()

    for done, seed in product(range(before, len(disk.journal) + 1), range(seeds)):
        after = open_directory(FakeDisk.after(disk.journal[:done], loss, seed))

        assert committed(after.logs["t", 0], 0, high_watermark=3) == [(2, b"b")], (seed, disk.journal[before:done])


def test_open_transaction_holds_back_what_comes_after_it(log: Log) -> None:
    """§42.1, §42.5: later transactions are decided, and wait for the first."""
    append(log, batch("a"))
    write(log, "b", producer=7)
    write(log, "c", producer=8)
    end(log, producer=8, commit=COMMIT)

    assert log.last_stable_offset(4) == 1
    assert committed(log, 0, high_watermark=4) == [(0, b"a")]
    end(log, producer=7, commit=COMMIT)
    assert committed(log, 0, high_watermark=5) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_an_end_counts_when_the_high_watermark_has_passed_it(log: Log) -> None:
    """§42.2."""
    write(log, "a", producer=7)
    end(log, producer=7, commit=COMMIT)

    assert log.last_stable_offset(1) == 0
    assert log.last_stable_offset(2) == 2


def test_aborted_records_are_listed_for_a_reader_in_their_middle(log: Log) -> None:
    """§43.5: its first offset lies before the read, its marker behind it."""
    write(log, "a", producer=7)
    write(log, "b", producer=7)
    log.roll()
    write(log, "c", producer=8)
    end(log, producer=7, commit=ABORT)
    end(log, producer=8, commit=COMMIT)

    assert log.aborted_transactions(1, 2) == [AbortedTxn(7, 0, 3, 2)]
    assert committed(log, 1, high_watermark=5) == [(2, b"c")]


def test_first_offset_is_the_log_start_when_records_are_deleted(log: Log) -> None:
    """§45.1."""
    write(log, "a", producer=7)
    write(log, "b", producer=7)
    log.delete_records_before(1)

    assert log.last_stable_offset(2) == 1


def test_failed_write_forgets_what_it_began_and_ended() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    write(log, "a", producer=7)
    ended = build_marker(TransactionMarker(False, 0), producer_id=7, producer_epoch=0, timestamp=NOW, leader_epoch=0)
    begun = bytearray(batch("b", producer_id=8, producer_epoch=0, base_sequence=0, transactional=True))
    ended[0:8], begun[0:8] = (1).to_bytes(8, "big"), (2).to_bytes(8, "big")
    log.append_as_follower(memoryview(ended + begun), now_wall_ms=NOW)
    assert dict(log.producers.open_transactions) == {8: 2}

    disk.fail("writev", OSError(28, "full"))
    with pytest.raises(Exception, match="could not append"):
        log.write_pending(now_wall_ms=NOW)

    assert dict(log.producers.open_transactions) == {7: 0}
    assert log.aborted_transactions(0, 1) == []
    assert log.last_stable_offset(1) == 0


def test_marker_of_an_older_epoch_or_coordinator_is_refused(log: Log) -> None:
    """§39.2 a, d."""
    write(log, "a", producer=7, epoch=3)
    end(log, producer=7, commit=COMMIT, epoch=3, coordinator_epoch=5)

    with pytest.raises(InvalidProducerEpoch):
        log.producers.check_marker(7, 2, TransactionMarker(True, 5), 0)
    with pytest.raises(TransactionCoordinatorFenced):
        log.producers.check_marker(7, 3, TransactionMarker(True, 4), 0)
    log.producers.check_marker(7, 3, TransactionMarker(True, 5), 0)
    log.producers.check_marker(99, 0, TransactionMarker(True, 0), 2)


def test_late_marker_of_the_transaction_before_is_refused(log: Log) -> None:
    """§39.2 b, c: under version 2 the next transaction has the marker's epoch; without one open it is a repetition."""
    end(log, producer=7, commit=COMMIT, epoch=4)
    log.producers.check_marker(7, 4, TransactionMarker(True, 0), 2)
    write(log, "a", producer=7, epoch=4)

    with pytest.raises(InvalidProducerEpoch):
        log.producers.check_marker(7, 4, TransactionMarker(True, 0), 2)
    log.producers.check_marker(7, 4, TransactionMarker(True, 0), 0)


def test_snapshot_keeps_transactions_open(log: Log) -> None:
    write(log, "a", producer=9)
    write(log, "b", producer=7)
    restored = ProducerStateManager()
    restored.load(log.producers.snapshot_bytes(), NOW, 2)

    assert list(restored.open_transactions.items()) == [(9, 0), (7, 1)]
    assert restored.last_stable_offset(2, 0) == 0


def test_marker_that_is_cut_off_leaves_the_index(log: Log) -> None:
    """§44.3: another leader may have decided otherwise."""
    write(log, "a", producer=7)
    marker = end(log, producer=7, commit=ABORT)
    log.truncate_to(marker)
    end(log, producer=7, commit=COMMIT)

    assert committed(log, 0, high_watermark=log.log_end_offset) == [(0, b"a")]


def test_damaged_index_is_made_again_from_the_log() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    write(log, "a", producer=7)
    log.roll()
    marker = end(log, producer=7, commit=ABORT)
    log.close()
    path = log.segments.active.path(TRANSACTION_INDEX_SUFFIX)
    assert disk.read_bytes(path) == build_transaction_index([AbortedTxn(7, 0, marker, marker + 1)])
    disk.flip_bit(path, 0)

    assert reopened(disk).aborted_transactions(0, 1) == [AbortedTxn(7, 0, marker, marker + 1)]


@given(st.data())
def test_stable_offset_is_that_of_the_log(data: st.DataObject) -> None:
    """I-T7: the first offset of each transaction without a marker below the high watermark."""
    transactions, began, ends, offset = Transactions(), {}, [], 0
    for producer, begins in data.draw(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=30)):
        if begins and producer not in began:
            transactions.begin(producer, offset)
            began[producer] = offset
        elif not begins:
            transactions.end(producer, offset)
            if producer in began:
                ends.append((began.pop(producer), offset))
        offset += 1
    for high_watermark in sorted(data.draw(st.lists(st.integers(0, offset), max_size=5))):
        unstable = [*began.values(), *(first for first, marker in ends if marker >= high_watermark)]
        assert transactions.last_stable_offset(high_watermark, 0) == min([*unstable, high_watermark])


MOVES = st.lists(st.tuples(st.sampled_from(("begin", "end", "confirm", "undo")), st.integers(1, 4)), max_size=40)


@given(MOVES)
def test_undone_transactions_are_what_they_were(moves: list[tuple[str, int]]) -> None:
    """Beside copies of what was confirmed: order, first offsets and stable offset are the same."""
    transactions = Transactions()
    now: tuple[tuple[int, int], ...] = ()
    confirmed = now
    offset = confirmed_end = 0
    for move, producer in moves:
        if move == "begin" and producer not in transactions.open:
            transactions.begin(producer, offset)
            now = (*now, (producer, offset))
        elif move == "end":
            transactions.end(producer, offset)
            now = tuple(each for each in now if each[0] != producer)
        elif move == "confirm":
            transactions.confirm()
            confirmed, confirmed_end = now, offset
        elif move == "undo":
            transactions.undo()
            now, offset = confirmed, confirmed_end
        offset += 1
        assert tuple(transactions.open.items()) == now
    transactions.undo()
    assert tuple(transactions.open.items()) == confirmed
    first_offsets = [first_offset for _, first_offset in confirmed]
    assert transactions.last_stable_offset(offset, 0) == min([*first_offsets, offset])


def test_undone_end_is_waited_for_again() -> None:
    transactions = Transactions()
    transactions.begin(1, 0)
    transactions.begin(2, 1)
    transactions.end(2, 2)
    transactions.confirm()
    transactions.end(1, 3)
    transactions.undo()

    assert transactions.last_stable_offset(3, 0) == 0
    transactions.end(1, 3)
    transactions.confirm()
    assert (transactions.last_stable_offset(3, 0), transactions.last_stable_offset(4, 0)) == (0, 4)


class TransactionLog(RuleBasedStateMachine):
    """A log beside a list of what was written: readers of committed records see what the list says."""

    CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=150, retention_ms=-1)

    @initialize()
    def begin(self) -> None:
        self.disk = FakeDisk()
        self.log = new_log(self.disk, self.CONFIG)
        # Offset and either the value with its producer, or None and the marker.
        self.written: list[tuple[int, int, str | bool]] = []

    @rule(producer=st.integers(1, 3), size=st.integers(1, 50))
    def write(self, producer: int, size: int) -> None:
        value = f"{self.log.log_end_offset}".ljust(size, ".")
        self.written.append((write(self.log, value, producer=producer), producer, value))

    @rule(size=st.integers(1, 50))
    def write_plain(self, size: int) -> None:
        value = f"{self.log.log_end_offset}".ljust(size, ".")
        made = bytearray(batch(value, base_offset=self.log.log_end_offset, leader_epoch=0))
        self.written.append((copy(self.log, made), -1, value))

    @rule(producer=st.integers(1, 3), commit=st.booleans())
    def end(self, producer: int, commit: bool) -> None:
        self.written.append((end(self.log, producer=producer, commit=commit), producer, commit))

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        offset = int(fraction * self.log.log_end_offset)
        self.log.truncate_to(offset)
        self.written = [each for each in self.written if each[0] < offset]

    @rule(flushed=st.booleans())
    def kill(self, flushed: bool) -> None:
        if flushed:
            self.log.flush()
        self.log = reopened(self.disk, self.CONFIG)

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.log = reopened(self.disk, self.CONFIG)

    @rule(start=st.floats(0, 1), bound=st.floats(0, 1), max_bytes=st.integers(1, 600))
    def read(self, start: float, bound: float, max_bytes: int) -> None:
        end_offset = self.log.log_end_offset
        offset, high_watermark = int(start * end_offset), int(bound * end_offset)
        if offset <= high_watermark:
            found = committed(self.log, offset, high_watermark=end_offset, max_bytes=max_bytes)
            assert found == self.expected(offset)

    def expected(self, start: int) -> list[tuple[int, bytes]]:
        outcome: dict[int, bool] = {}
        began: dict[int, list[int]] = {}
        for offset, producer, what in self.written:
            if isinstance(what, bool):
                outcome |= dict.fromkeys(began.pop(producer, []), what)
            elif producer >= 0:
                began.setdefault(producer, []).append(offset)
        stable = min((offsets[0] for offsets in began.values()), default=self.log.log_end_offset)
        return [
            (offset, what.encode())
            for offset, _, what in self.written
            if isinstance(what, str) and start <= offset < stable and outcome.get(offset, True)
        ]

    @invariant()
    def open_are_those_without_a_marker(self) -> None:
        began: dict[int, int] = {}
        for offset, producer, what in getattr(self, "written", []):
            if isinstance(what, bool):
                began.pop(producer, None)
            elif producer >= 0:
                began.setdefault(producer, offset)
        assert not hasattr(self, "log") or dict(self.log.producers.open_transactions) == began

    @invariant()
    def index_has_each_aborted_transaction_once(self) -> None:
        """I-30: with its first offset and its marker, over restarts, kills and truncations."""
        began: dict[int, int] = {}
        expected = []
        for offset, producer, what in getattr(self, "written", []):
            if not isinstance(what, bool):
                if producer >= 0:
                    began.setdefault(producer, offset)
            elif (first := began.pop(producer, None)) is not None and not what:
                expected.append((producer, first, offset))
        if hasattr(self, "log"):
            found = self.log.aborted_transactions(0, self.log.log_end_offset)
            assert sorted(each[:3] for each in found) == sorted(expected)


TransactionLog.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestTransactionLog = TransactionLog.TestCase

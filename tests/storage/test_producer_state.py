"""Idempotent producers at one partition (§13.6): duplicates, order, expiry, snapshots in Kafka's format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequenceNumber
from ottla.protocol.records.batch import BatchHeader, crc32c, parse_batch_header
from ottla.protocol.records.control import TransactionMarker, build_marker
from ottla.storage.producer_entry import ProducerBatch, ProducerState
from ottla.storage.producer_snapshot import CorruptSnapshot
from ottla.storage.producer_state import DuplicateOf, ProducerStateManager
from tests.protocol import golden_batches as golden
from tests.storage.producers import LAST, Partition, batch

DAY = 86400000


def partition_with(*headers: BatchHeader, starts_at: int = 0) -> Partition:
    partition = Partition(log_end_offset=starts_at)
    for header in headers:
        assert isinstance(partition.append(header), int)
    partition.producers.confirm()
    return partition


TRANSACTIONAL = 0x10
MARKER = 0x30
COMMIT = build_marker(TransactionMarker(True, 5), producer_id=7, producer_epoch=0, timestamp=1000)


def replay(producers: ProducerStateManager, header: BatchHeader, now_ms: int = 0) -> None:
    producers.replay(COMMIT if header.is_control else b"", header, now_ms)


def open_transactions(producers: ProducerStateManager) -> list[int]:
    """The first offsets of those that are open."""
    offsets = [state.transaction_first_offset for state in producers.states.values()]
    return [offset for offset in offsets if offset >= 0]


def test_batches_in_order_are_new():
    partition = partition_with(batch(0, 3), batch(3), batch(4, 2))
    assert partition.log_end_offset == 6


def test_a_batch_without_producer_id_leaves_nothing():
    partition = partition_with(batch(-1, producer=-1, epoch=-1), batch(-1, producer=-1, epoch=-1))
    replay(partition.producers, batch(-1, producer=-1, epoch=-1))
    assert len(partition.producers) == 0


def test_a_repeated_batch_is_answered_with_its_first_offset():
    """§13.6.2 a."""
    partition = partition_with(batch(0, 3, timestamp=1), batch(3, 2, timestamp=2), starts_at=100)

    assert partition.append(batch(3, 2)) == DuplicateOf(103, 104, 2)
    assert partition.append(batch(0, 3)) == DuplicateOf(100, 102, 1)
    assert partition.log_end_offset == 105


def test_a_duplicate_is_recognised_before_its_sequence_is_judged():
    """T-20: four later batches have gone by, so its sequence is out of order by now."""
    partition = partition_with(*(batch(sequence) for sequence in range(5)))
    assert [partition.append(batch(sequence)) for sequence in range(5)] == [
        DuplicateOf(sequence, sequence, 1000) for sequence in range(5)
    ]


def test_only_the_last_five_batches_are_remembered():
    """§13.6.3: as many as may be in flight."""
    partition = partition_with(*(batch(sequence) for sequence in range(6)))
    with pytest.raises(OutOfOrderSequenceNumber):
        partition.append(batch(0))
    assert partition.append(batch(1)) == DuplicateOf(1, 1, 1000)


@pytest.mark.parametrize(("sequence", "count"), [(3, 1), (3, 3), (4, 1), (0, 5), (2, 2)])
def test_a_batch_that_only_overlaps_is_no_duplicate(sequence: int, count: int):
    partition = partition_with(batch(0, 3), batch(3, 2))
    with pytest.raises(OutOfOrderSequenceNumber):
        partition.append(batch(sequence, count))


def test_a_gap_is_out_of_order():
    """§13.6.2 d."""
    with pytest.raises(OutOfOrderSequenceNumber):
        partition_with(batch(0)).append(batch(2))


def test_an_older_epoch_is_fenced():
    """§13.6.2 b; even the repetition of a batch of that epoch."""
    partition = partition_with(batch(0), batch(0, epoch=1))
    for sequence in (0, 1):
        with pytest.raises(InvalidProducerEpoch):
            partition.append(batch(sequence))


def test_a_new_epoch_begins_at_zero():
    """§13.6.2 c."""
    partition = partition_with(batch(0), batch(1))
    with pytest.raises(OutOfOrderSequenceNumber):
        partition.append(batch(2, epoch=1))
    assert partition.append(batch(0, epoch=1)) == 2
    assert partition.append(batch(1, epoch=1)) == 3


def test_a_repeated_batch_is_looked_for_in_its_own_epoch():
    partition = partition_with(batch(0), batch(0, epoch=1), batch(1, epoch=1))
    assert partition.append(batch(0, epoch=1)) == DuplicateOf(1, 1, 1000)


def test_an_unknown_producer_may_begin_anywhere():
    """§13.6.2 e: its state may have expired."""
    assert partition_with(batch(0)).append(batch(77, producer=8, epoch=5)) == 1


@pytest.mark.parametrize("epoch", [-2, -32768])
def test_no_producer_begins_in_an_epoch_below_that_of_none(epoch: int):
    """§13.6.2 b: of a producer that is unknown, NO_PRODUCER_EPOCH is the stored one, as in Kafka."""
    partition = partition_with()
    with pytest.raises(InvalidProducerEpoch):
        partition.append(batch(0, epoch=epoch))


def test_producers_are_kept_apart_and_so_are_partitions():
    one, other = partition_with(batch(0), batch(0, producer=8)), partition_with()
    assert one.append(batch(1, producer=8)) == 2
    assert other.append(batch(0)) == 0


@pytest.mark.parametrize(
    ("first", "count", "following"),
    [(LAST, 1, 0), (LAST - 1, 2, 0), (LAST - 1, 4, 2), (LAST - 5, 5, LAST)],
)
def test_after_2147483647_comes_0(first: int, count: int, following: int):
    partition = partition_with(batch(first, count))
    assert partition.append(batch(first, count)) == DuplicateOf(0, count - 1, 1000)
    for wrong in {0, following - 1, following + 1} - {following, -1, LAST + 1}:
        with pytest.raises(OutOfOrderSequenceNumber):
            partition.append(batch(wrong))
    assert partition.append(batch(following)) == count
    assert partition.append(batch(first, count)) == DuplicateOf(0, count - 1, 1000)


# Transactions: not offered, and their data not misread


def test_transactional_batch_without_a_transaction_is_refused():
    """§13.6.2 g."""
    for partition in (partition_with(), partition_with(batch(0))):
        with pytest.raises(InvalidTxnState):
            partition.append(batch(1, attributes=TRANSACTIONAL))


def test_a_plain_batch_inside_an_open_transaction_is_refused():
    """§13.6.2 f."""
    partition = Partition()
    replay(partition.producers, batch(0, attributes=TRANSACTIONAL, base_offset=40))
    assert open_transactions(partition.producers) == [40]
    with pytest.raises(InvalidTxnState):
        partition.append(batch(1))
    assert partition.producers.check(batch(1, attributes=TRANSACTIONAL)) is None


def test_a_marker_in_the_log_closes_its_transaction():
    producers = ProducerStateManager()
    replay(producers, batch(0, attributes=TRANSACTIONAL, base_offset=40))
    replay(producers, batch(0, producer=8, attributes=TRANSACTIONAL, base_offset=41))
    replay(producers, batch(1, attributes=TRANSACTIONAL, base_offset=42))
    assert open_transactions(producers) == [40, 41]

    replay(producers, batch(-1, attributes=MARKER, base_offset=43))

    assert open_transactions(producers) == [41]
    assert producers.check(batch(1)) == DuplicateOf(42, 42, 1000)
    assert producers.check(batch(2)) is None
    replay(producers, batch(-1, producer=8, attributes=MARKER, base_offset=44))
    assert open_transactions(producers) == []


def test_after_a_marker_of_a_new_epoch_sequences_begin_at_zero():
    producers = ProducerStateManager()
    replay(producers, batch(0, attributes=TRANSACTIONAL))
    replay(producers, batch(-1, epoch=1, attributes=MARKER, base_offset=1))

    with pytest.raises(OutOfOrderSequenceNumber):
        producers.check(batch(1, epoch=1))
    assert producers.check(batch(0, epoch=1)) is None
    with pytest.raises(InvalidProducerEpoch):
        producers.check(batch(1))


def test_kafka_s_marker_is_replayed():
    producers = ProducerStateManager()
    producers.replay(golden.MARKER, parse_batch_header(golden.MARKER), 5)
    assert dict(producers.states) == {
        4711: ProducerState(epoch=3, last_timestamp=1700000000000, coordinator_epoch=9, seen_ms=5)
    }


# Appends that fail, and replay


def test_an_append_that_could_not_be_written_is_forgotten():
    partition = partition_with(batch(0), batch(1))
    before = dict(partition.producers.states)
    for header in (batch(2), batch(3), batch(0, producer=8), batch(0, producer=9), batch(1, producer=9)):
        partition.append(header)

    partition.producers.undo()

    assert dict(partition.producers.states) == before
    assert partition.append(batch(2)) == 7


def test_confirmed_producer_states_are_not_undone():
    partition = partition_with(batch(0))
    partition.append(batch(1))
    partition.producers.confirm()
    partition.append(batch(2))
    partition.producers.undo()
    assert isinstance(partition.append(batch(1)), DuplicateOf)
    assert partition.producers.check(batch(2)) is None


def test_replaying_a_log_gives_the_state_that_appending_gave():
    """§13.6.1; the same for followers (§13.6.4)."""
    headers = [batch(0, 2), batch(0, producer=8), batch(2), batch(0, epoch=1), batch(1, 4, producer=8)]
    partition = partition_with(*headers)
    replayed = ProducerStateManager()
    base_offset = 0
    for header in headers:
        replay(replayed, header._replace(base_offset=base_offset))
        base_offset += header.record_count
    assert dict(replayed.states) == dict(partition.producers.states)


def test_an_emptied_log_knows_no_producer():
    partition = partition_with(batch(0))
    partition.producers.clear()
    partition.producers.undo()
    assert partition.append(batch(50)) == 1


# Expiry


def test_silent_producers_expire_by_the_broker_s_clock():
    """Not by the timestamps of records, which may be of any age."""
    partition = Partition(ProducerStateManager(expiration_ms=DAY))
    partition.append(batch(0, timestamp=5))
    partition.now_ms = 10
    partition.append(batch(0, producer=8, timestamp=1 << 50))
    partition.producers.confirm()

    assert partition.producers.expire(DAY - 1).expired == []
    assert partition.producers.expire(DAY).expired == [7]
    assert partition.producers.expire(DAY + 10).expired == [8]


def test_an_open_transaction_keeps_its_producer():
    producers = ProducerStateManager(expiration_ms=DAY)
    replay(producers, batch(0, attributes=TRANSACTIONAL))
    assert producers.expire(10 * DAY).expired == []


def test_producer_whose_batch_is_not_yet_written_does_not_expire():
    producers = ProducerStateManager(expiration_ms=0)
    producers.update(batch(0), 0, 0)
    assert producers.expire(1).expired == []
    producers.undo()
    assert len(producers) == 0


# Snapshots


def test_a_snapshot_is_read_as_kafka_reads_it():
    """What ProducerStateManager.readSnapshot printed of these bytes."""
    producers = ProducerStateManager()
    producers.load(golden.SNAPSHOT, now_wall_ms=3, snapshot_offset=0)
    first = {"first_sequence": 2147483000, "last_sequence": 2351, "timestamp": 1700000002999}
    assert dict(producers.states) == {
        9: ProducerState(1, (ProducerBatch(first_offset=77, last_offset=3076, **first),), 1700000002999, seen_ms=3),
        10: ProducerState(
            1,
            (ProducerBatch(first_offset=5000, last_offset=7999, **first),),
            1700000002999,
            transaction_first_offset=5000,
            seen_ms=3,
        ),
        11: ProducerState(1, (), 1700000002999, seen_ms=3),
    }
    assert producers.snapshot_bytes() == golden.SNAPSHOT


def test_only_the_last_batch_of_a_snapshot_is_a_duplicate():
    partition = partition_with(batch(0), batch(1, 3))
    restarted = Partition(ProducerStateManager(), partition.log_end_offset)
    restarted.producers.load(partition.producers.snapshot_bytes(), now_wall_ms=0, snapshot_offset=4)

    assert restarted.append(batch(1, 3)) == DuplicateOf(1, 3, 1000)
    with pytest.raises(OutOfOrderSequenceNumber):
        restarted.append(batch(0))
    assert restarted.append(batch(4)) == 4


def test_an_empty_snapshot():
    content = ProducerStateManager().snapshot_bytes()
    assert len(content) == 10
    producers = partition_with(batch(0)).producers
    producers.load(content, 0, 0)
    assert len(producers) == 0


@pytest.mark.parametrize("size", range(10))
def test_a_torn_snapshot_is_corrupt(size: int):
    with pytest.raises(CorruptSnapshot):
        ProducerStateManager().load(golden.SNAPSHOT[:size], 0, 0)


@given(st.integers(0, len(golden.SNAPSHOT) - 1), st.integers(1, 255))
def test_a_changed_snapshot_is_corrupt_and_changes_nothing(at: int, change: int):
    damaged = bytearray(golden.SNAPSHOT)
    damaged[at] ^= change
    producers = partition_with(batch(0)).producers
    before = dict(producers.states)

    with pytest.raises(CorruptSnapshot):
        producers.load(bytes(damaged), 0, 0)
    assert dict(producers.states) == before


@pytest.mark.parametrize("count", [0, 2, 4, -1, (1 << 31) - 1])
def test_a_count_that_is_not_there_is_corrupt(count: int):
    entries = count.to_bytes(4, "big", signed=True) + golden.SNAPSHOT[10:]
    content = golden.SNAPSHOT[:2] + crc32c(entries).to_bytes(4, "big") + entries
    with pytest.raises(CorruptSnapshot):
        ProducerStateManager().load(content, 0, 0)

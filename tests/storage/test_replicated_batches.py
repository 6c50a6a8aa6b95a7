"""What a follower takes from its leader (§16.3.4)."""

import pytest

from ottla.protocol.errors import CorruptMessage
from ottla.protocol.records.batch import BATCH_HEADER_SIZE
from ottla.protocol.records.record import build_batch
from ottla.storage.validation import validate_replicated
from tests.storage.test_validation import some_records, with_bytes


def chain(*base_offsets: int) -> bytearray:
    return bytearray().join(build_batch(some_records(2), base_offset=offset) for offset in base_offsets)


def test_batches_of_the_leader_are_taken_as_they_are():
    """Gaps are legal after compaction; sizes and records are the leader's business."""
    received = list(validate_replicated(memoryview(chain(10, 12, 40)), log_end_offset=7))
    assert [header.base_offset for _, header in received] == [10, 12, 40]


@pytest.mark.parametrize(("offsets", "log_end_offset"), [((10,), 11), ((10, 11), 10), ((10, 10), 10), ((12, 10), 0)])
def test_offsets_from_the_leader_must_rise(offsets: tuple[int, ...], log_end_offset: int):
    with pytest.raises(CorruptMessage):
        list(validate_replicated(memoryview(chain(*offsets)), log_end_offset))


def test_a_damaged_batch_from_the_leader_is_seen():
    data = chain(0, 2)
    data[-1] ^= 1
    received = validate_replicated(memoryview(data), 0)
    assert next(received)[0] == 0
    with pytest.raises(CorruptMessage):
        next(received)


def test_a_negative_range_from_the_leader_is_corrupt():
    with pytest.raises(CorruptMessage):
        list(validate_replicated(memoryview(with_bytes(23, b"\xff\xff\xff\xfe")), 0))


def test_an_empty_compacted_batch_from_the_leader_is_taken():
    empty = with_bytes(57, bytes(4), build_batch(some_records())[:BATCH_HEADER_SIZE])
    assert len(list(validate_replicated(memoryview(empty), 0))) == 1


def test_a_batch_cut_off_at_the_end_is_left_for_the_next_fetch():
    whole = chain(0)
    assert len(list(validate_replicated(memoryview(whole + chain(2)[:-1]), 0))) == 1

"""Where the judge lets readers of committed records stop (I-29)."""

import pytest

from tests.fakes.disk import FakeDisk
from tests.simulation.cluster.stable_offsets import StableOffset
from tests.storage.support import new_log
from tests.storage.transactional import ABORT, COMMIT, end, write


def two_transactions(*, read_back: bool) -> StableOffset:
    """From 0 and 1, with markers at 2 and 3."""
    log = new_log(FakeDisk())
    stable = StableOffset(4 if read_back else 0, 0)
    for producer in (7, 8):
        write(log, "x", producer=producer)
    end(log, producer=7, commit=COMMIT)
    end(log, producer=8, commit=ABORT)
    for batch in log.segments.active.batches_from(0):
        assert stable.add(batch.header, batch.view) is None
    return stable


@pytest.mark.parametrize(("high_watermark", "expected"), [(1, 0), (2, 0), (3, 1), (4, 4)])
def test_markers_below_the_high_watermark_count(high_watermark: int, expected: int) -> None:
    assert set(two_transactions(read_back=False).may_be(high_watermark, 0)) == {expected}


@pytest.mark.parametrize(("high_watermark", "expected"), [(2, {0, 1, 2}), (3, {1, 3}), (4, {4})])
def test_markers_below_a_snapshot_may_count_too(high_watermark: int, expected: set[int]) -> None:
    """Producers were read back from a snapshot that ends behind any of them."""
    assert set(two_transactions(read_back=True).may_be(high_watermark, 0)) == expected

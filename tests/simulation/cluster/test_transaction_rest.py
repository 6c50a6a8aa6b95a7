"""Which open transactions the judge excuses when faults have stopped (I-23)."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes.disk import FakeDisk
from tests.simulation.cluster.transaction_rest import TransactionRest
from tests.storage.support import new_log
from tests.storage.transactional import write


@pytest.mark.parametrize(
    ("undecided", "high_watermark", "is_found"),
    [
        pytest.param({0, 1}, 2, False, id="both hang"),
        pytest.param({0}, 2, True, id="another is open"),
        pytest.param({0, 1}, 1, True, id="not replicated"),
        pytest.param(set(), 2, True, id="none hangs"),
    ],
)
def test_open_transactions_are_found_but_those_that_hang(
    undecided: set[int], high_watermark: int, is_found: bool
) -> None:
    log = new_log(FakeDisk())
    for producer in (7, 8):
        write(log, "x", producer=producer)
    stable = log.last_stable_offset(high_watermark)
    partition = SimpleNamespace(
        topic="payments", index=0, log=log, high_watermark=high_watermark, last_stable_offset=stable
    )
    broker = SimpleNamespace(replicas=[partition])
    rest: Any = object.__new__(TransactionRest)
    rest._world = SimpleNamespace(undecided_in=lambda each: undecided if each == ("payments", 0) else set())

    assert bool(rest._open_in_partitions(broker)) is is_found

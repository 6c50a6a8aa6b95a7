"""What is done for a partition with very many producers does not grow with them: counted in calls, not in time."""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from ottla.protocol.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from ottla.protocol.records.control import TransactionMarker
from ottla.storage.log import Log
from ottla.storage.producer_pages import PAGES_PER_SLICE, PRODUCERS_PER_PAGE
from ottla.storage.producer_state import ProducerStateManager
from ottla.storage.producer_table import PACKED_AT_ONCE, RECENT_MAX
from tests.fakes.disk import FakeDisk
from tests.storage.producers import batch as header_of
from tests.storage.support import NOW, append, batch, new_log

FEW, MANY = 8_000, 32_000
RECENT = RECENT_MAX + PACKED_AT_ONCE
DAY_MS = 86_400_000


def calls(action: Callable[[], object]) -> int:
    """How many calls and resumptions of Python functions, and calls of C functions, it takes."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def producers_of(count: int, seen_ms: int = NOW) -> ProducerStateManager:
    producers = ProducerStateManager()
    for producer in range(count):
        producers.update(header_of(0, producer=producer), producer, seen_ms)
        producers.confirm()
    return producers


def log_of(count: int) -> Log:
    log = new_log(FakeDisk())
    append(log, batch("x", producer_id=count, producer_epoch=0, base_sequence=0))
    log._producers.manager = producers_of(count)
    return log


@pytest.fixture(autouse=True, scope="module")
def is_used() -> None:
    """What the code does once, at its first use, is done before anything is counted."""
    log = log_of(1)
    log.roll()
    log.begin_snapshot()


def test_roll_costs_the_same_with_four_times_as_many_producers() -> None:
    costs = [calls(log_of(count).roll) for count in (FEW, MANY)]
    assert max(costs) < 1000
    assert costs[0] == costs[1]


def test_beginning_a_snapshot_costs_the_same() -> None:
    costs: list[int] = []
    for count in (FEW, MANY):
        log = log_of(count)
        log.roll()
        costs.append(calls(log.begin_snapshot))
    assert costs[0] == costs[1] < 300


def test_deleting_a_log_costs_the_same() -> None:
    logs = [log_of(count) for count in (FEW, MANY)]
    few, many = (calls(log.close_deleted) for log in logs)
    assert few == many < 100


@pytest.mark.parametrize("count", [FEW, MANY])
def test_no_write_looks_at_more_than_a_page(count: int) -> None:
    """Of new producers, of those that wrote long ago, while a snapshot holds on to all pages."""
    producers = producers_of(count)

    def write(header: BatchHeader) -> None:
        producers.check(header)
        producers.update(header, count, NOW)
        producers.confirm()

    most = 0
    for n in range(3 * RECENT):
        if n % RECENT == 0:
            copied = producers.states.copy()
        old, new = header_of(1, producer=n * 7919 % count), header_of(0, producer=count + n)
        most = max(most, calls(partial(write, old)), calls(partial(write, new)))
    assert len(copied) >= count
    # Some 30 for each of those that are packed together.
    assert most < 60 * PACKED_AT_ONCE


def test_begin_and_end_copy_nothing_of_what_is_open() -> None:
    """In the bytes of one write: it may be undone, and all that are open would be some hundred thousand."""
    producers = ProducerStateManager()
    for producer in range(FEW):
        producers.update(header_of(0, producer=producer, attributes=TRANSACTIONAL_BIT), producer, NOW)
        producers.confirm()

    def write(ended: int, begun: int) -> None:
        marker = header_of(-1, producer=ended, attributes=TRANSACTIONAL_BIT | CONTROL_BIT)
        producers.update_by_marker(marker, TransactionMarker(is_commit=True, coordinator_epoch=0), begun, NOW)
        producers.update(header_of(0, producer=begun, attributes=TRANSACTIONAL_BIT), begun, NOW)
        producers.confirm()
        producers.last_stable_offset(begun, 0)

    write(0, FEW)
    tracemalloc.start()
    try:
        write(1, FEW + 1)
        allocated = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert len(producers.open_transactions) == FEW
    assert allocated < 20_000


def test_expiry_looks_at_some_pages_in_a_slice() -> None:
    """Where every other producer of a page goes, and where all go."""
    producers = ProducerStateManager(DAY_MS)
    for producer in range(MANY):
        producers.update(header_of(0, producer=producer), producer, NOW + producer % 2 * DAY_MS)
        producers.confirm()
    for now, left in ((NOW + DAY_MS, MANY // 2), (NOW + 2 * DAY_MS, 0)):
        most = slices = 0
        from_id: int | None = None
        while slices == 0 or from_id is not None:
            before = len(producers)
            from_id = producers.expire(now, from_id).next_id
            most, slices = max(most, before - len(producers)), slices + 1
        assert len(producers) == left
        assert most <= RECENT + PAGES_PER_SLICE * PRODUCERS_PER_PAGE
        assert slices >= MANY / PRODUCERS_PER_PAGE / PAGES_PER_SLICE - 1


def test_producers_are_few_objects_for_the_garbage_collector() -> None:
    """It goes through all old objects in one step."""
    gc.collect()
    before = len(gc.get_objects())
    producers = producers_of(MANY)
    gc.collect()
    made = len(gc.get_objects()) - before

    assert len(producers) == MANY
    assert made < 4 * RECENT + 4 * MANY / PRODUCERS_PER_PAGE

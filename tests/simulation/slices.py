"""What is worked on in slices although it is small: what comes in between is what large groups and fetches meet."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from ottla.broker.handlers import fetch as fetch_handler
from ottla.broker.replicas import long_fetch
from ottla.coordinator import group_removal
from ottla.coordinator.classic import describe
from ottla.coordinator.offsets import commit, fetch
from ottla.coordinator.runtime import partition, step_context
from ottla.storage import found_log, log_producers, producer_pages, producer_table

SIZES: list[tuple[Any, str]] = [
    (step_context, "MEMBERS_PER_SLICE"),
    (partition, "RECORDS_PER_SLICE"),
    (commit, "OFFSETS_PER_SLICE"),
    (fetch, "OFFSETS_PER_SLICE"),
    (group_removal, "OFFSETS_PER_SLICE"),
    (describe, "GROUPS_PER_SLICE"),
]


FETCH_SIZES: list[tuple[Any, str, int]] = [
    (fetch_handler, "ITEMS_PER_SLICE", 1),
    (fetch_handler, "ONE_SLICE_BYTES", 0),
    (long_fetch, "ITEMS_PER_SLICE", 1),
]


# Two producers of a log are many: others are packed, and every snapshot is written in a thread.
PRODUCER_SIZES: list[tuple[Any, str, int]] = [
    (log_producers, "SNAPSHOT_IN_PLACE_MAX", 0),
    (found_log, "SNAPSHOT_IN_PLACE_MAX", 0),
    (producer_pages, "PRODUCERS_PER_PAGE", 4),
    (producer_pages, "PAGES_PER_SLICE", 1),
    (producer_table, "RECENT_MAX", 2),
    (producer_table, "PACKED_AT_ONCE", 1),
]


@contextmanager
def slices_of_one(*, of_groups: bool, of_fetches: bool, of_producers: bool) -> Iterator[None]:
    """While it lasts, and as the world has drawn it, a slice is one member, group, record or offset; one partition;
    very few producers."""
    patches = [patch.object(module, name, 1) for module, name in SIZES] if of_groups else []
    patches += [patch.object(*size) for size in FETCH_SIZES] if of_fetches else []
    patches += [patch.object(*size) for size in PRODUCER_SIZES] if of_producers else []
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield

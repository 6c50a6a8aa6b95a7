"""Groups that are worked on in slices although they are small: what comes in between is what large groups meet."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ottla.coordinator import group_removal
from ottla.coordinator.classic import describe
from ottla.coordinator.offsets import commit, fetch
from ottla.coordinator.runtime import partition, step_context

SIZES: list[tuple[Any, str]] = [
    (step_context, "MEMBERS_PER_SLICE"),
    (partition, "RECORDS_PER_SLICE"),
    (commit, "OFFSETS_PER_SLICE"),
    (fetch, "OFFSETS_PER_SLICE"),
    (group_removal, "OFFSETS_PER_SLICE"),
    (describe, "GROUPS_PER_SLICE"),
]


@contextmanager
def slices_of_one(are_drawn: bool) -> Iterator[None]:
    """While it lasts, and if the world has drawn it, a slice is one member, group, record or offset."""
    patches = [patch.object(module, name, 1) for module, name in SIZES] if are_drawn else []
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()

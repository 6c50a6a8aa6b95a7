"""Offset index and time index: what they lead to, and which files are none."""

from collections.abc import Callable

import pytest

from ottla.storage.indexes import OffsetIndex, TimeIndex


def test_the_offset_index_leads_to_the_last_entry_at_or_before() -> None:
    index = OffsetIndex()
    for entry in ((10, 100), (20, 200), (30, 300)):
        index.append(*entry)
    assert [index.entry_before(offset) for offset in (9, 10, 19, 30, 99)] == [
        None,
        (10, 100),
        (10, 100),
        (30, 300),
        (30, 300),
    ]
    again = OffsetIndex.from_bytes(index.to_bytes() + bytes(80), 400)
    assert again is not None
    assert again.to_bytes() == index.to_bytes(), "preallocated space is no entry"


@pytest.mark.parametrize(
    "content",
    [
        b"x",
        bytes(7),
        b"\0\0\0\1\0\0\0\2" * 2,
        b"\0\0\0\1\0\0\1\0",
        b"\x80\0\0\1\0\0\0\2",
        pytest.param(b"\0\0\0\1\0\0\0\2\0\0\0\2\0\0\0\0", id="position-that-falls"),
        pytest.param(b"\0\0\0\1\0\0\0\0", id="entry-of-the-first-batch"),
    ],
)
def test_damaged_offset_indexes_are_noticed(content: bytes) -> None:
    assert OffsetIndex.from_bytes(content, 100) is None


class Interrupted(int):
    """What a search compares entries with, while the loop does something."""

    does: Callable[[], None]

    def __lshift__(self, bits: int) -> "Interrupted":
        return interrupted(int(self) << bits, self.does)

    def __or__(self, other: int) -> "Interrupted":
        return interrupted(int(self) | other, self.does)

    def __lt__(self, other: int) -> bool:
        self.does()
        return int(self) < other

    def __gt__(self, other: int) -> bool:
        self.does()
        return int(self) > other


def interrupted(value: int, does: Callable[[], None]) -> Interrupted:
    number = Interrupted(value)
    number.does = does
    return number


def test_search_beside_a_truncation_finds_what_was_there() -> None:
    """A thread searches, and the loop truncates."""
    offsets, times = OffsetIndex(), TimeIndex()
    for n in range(1, 5):
        offsets.append(10 * n, 100 * n)
        times.maybe_append(1_000 * n, 10 * n)

    assert offsets.entry_before(interrupted(99, lambda: offsets.truncate(1))) == (40, 400)
    assert times.offset_before(interrupted(9_999, lambda: times.truncate(1))) == 40
    assert (len(offsets), len(times)) == (1, 1)


def test_the_time_index_takes_only_rising_timestamps() -> None:
    index = TimeIndex()
    for entry in ((5, 1), (5, 2), (4, 3), (9, 4)):
        index.maybe_append(*entry)
    assert [index.entry(n) for n in range(len(index))] == [(5, 1), (9, 4)]
    assert [index.offset_before(timestamp) for timestamp in (4, 5, 6, 9, 10)] == [0, 0, 1, 1, 4]
    again = TimeIndex.from_bytes(index.to_bytes() + bytes(24))
    assert again is not None
    assert again.to_bytes() == index.to_bytes()


@pytest.mark.parametrize("content", [b"x", TimeIndex().to_bytes() + b"\0" * 11 + b"\1" + b"\0" * 8 + b"\1" * 3])
def test_damaged_time_indexes_are_noticed(content: bytes) -> None:
    assert TimeIndex.from_bytes(content) is None

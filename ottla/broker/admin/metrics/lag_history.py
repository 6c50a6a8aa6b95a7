"""How far a group is behind in time, and what its commits look like: decided on samples (docs/operators.md §5).

A ring keeps when the high watermark of a partition was first seen where it was. The oldest record that a group has not
read was written before the first entry beyond its offset, and after the entry before that.
"""

from collections import deque
from collections.abc import Collection
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

RING_ENTRIES = 60
SAMPLES = 10


class EndRing:
    """(time, high watermark) of a partition, one entry for each value, oldest first."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: deque[tuple[int, int]] = deque(maxlen=RING_ENTRIES)

    def add(self, now_ms: int, end: int) -> None:
        if self._entries and self._entries[-1][1] > end:
            # Truncated, or another leader: what was seen is not the same log.
            self._entries.clear()
        if not self._entries or self._entries[-1][1] != end:
            self._entries.append((now_ms, end))

    def unread_since_ms(self, offset: int) -> int | None:
        """When the record at this offset was first seen to be there; None where the ring does not go back so far.
        It is not extrapolated."""
        entries = self._entries
        if not entries or entries[0][1] > offset:
            return None
        return next((at_ms for at_ms, end in entries if end > offset), None)


class Verdict(IntEnum):
    """The worst of a group's partitions is the group's: the larger value. After Burrow's idea: a threshold in records
    would be wrong for every second topic."""

    OK = 0
    UNKNOWN = 1
    """There are not samples enough."""
    NO_MEMBERS = 2
    SLOW = 3
    """Commits move, and the lag has not fallen at any sample."""
    REWOUND = 4
    STALLED = 5
    """Commits come, and the offset stays."""
    STOPPED = 6
    """There is lag, and no commit for longer than all samples span."""

    @property
    def word(self) -> str:
        return self.name.lower().replace("_", " ")


class CommitSample(NamedTuple):
    """Of a group and a partition at a moment."""

    at_ms: int
    offset: int
    lag: int
    committed_ms: int


def judge(samples: Collection[CommitSample], *, has_members: bool) -> Verdict:
    """Of the last `SAMPLES`, oldest first."""
    if any(each.lag == 0 for each in samples):
        return Verdict.OK
    if not has_members:
        return Verdict.NO_MEMBERS
    if len(samples) < SAMPLES:
        return Verdict.UNKNOWN
    first, *_, last = samples
    pairs = list(pairwise(samples))
    if any(after.offset < before.offset for before, after in pairs):
        return Verdict.REWOUND
    if first.offset == last.offset:
        return Verdict.STALLED if last.committed_ms > first.at_ms else Verdict.STOPPED
    return Verdict.OK if any(after.lag < before.lag for before, after in pairs) else Verdict.SLOW

"""The segments of one log, in the order of their base offsets."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from ottla.storage.segment import Segment


class Segments:
    """Never empty. The last segment is the active one: only it is appended to."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._replace(sorted(segments, key=lambda segment: segment.base_offset))

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(tuple(self._segments))

    def __getitem__(self, n: int) -> Segment:
        return self._segments[n]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def index_of(self, offset: int) -> int:
        """Which segment holds `offset`: the last one that begins at or before it, the first one if none does."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def up_to_active(self) -> list[Segment]:
        """All segments but the active one."""
        return self._segments[:-1]

    def end_of(self, n: int, log_end_offset: int) -> int:
        """The offset with which the n-th segment ends."""
        return self._bases[n + 1] if n + 1 < len(self._bases) else log_end_offset

    def add(self, segment: Segment) -> None:
        assert not self._segments or segment.base_offset > self._bases[-1], "segments are added in order"
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def exchange(self, old: Iterable[Segment], new: Iterable[Segment]) -> None:
        """Take `old` out and put `new` in."""
        gone = set(map(id, old))
        kept = [segment for segment in self._segments if id(segment) not in gone]
        self._replace(sorted([*kept, *new], key=lambda segment: segment.base_offset))

    def _replace(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]

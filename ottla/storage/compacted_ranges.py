"""The file `ottla-compacted-ranges` of a log: what compaction has left out at the end of segments.

A segment ends where the next one begins, but for two reasons: compaction dropped its last records, or a loss of power
did, because its bytes had not reached the disk when the next segment's had. Recovery has to know which it was:
behind a gap all is well, behind a loss the log must end. So a pass lists, durably and before any of its segments
counts, what each of them replaces and how large it is. A compacted segment is synced before that: it has its size
after any crash, and one of another size is not the one that is meant.

A log that had gaps before there was a list has no file. Recovery believes all of its gaps.
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from ottla.storage.checkpoints import COMPACTED_RANGES, build_lines, parse_lines
from ottla.storage.files import FileSystem, write_atomically


class CompactedRange(NamedTuple):
    """A compacted segment, and the offset before which everything that is not in it is gone for good."""

    base_offset: int
    end_offset: int
    size_bytes: int | None
    """None: an earlier version wrote the list, and did not say."""

    def is_of(self, base_offset: int, size_bytes: int) -> bool:
        return self.base_offset == base_offset and self.size_bytes in (None, size_bytes)


def build_ranges(ranges: Iterable[CompactedRange]) -> bytes:
    return build_lines(" ".join(str(number) for number in each if number is not None) for each in ranges)


def parse_ranges(content: bytes) -> list[CompactedRange]:
    """Raises ValueError for what no broker has written."""
    try:
        return [CompactedRange(*map(int, line)) for line in parse_lines(content, columns=3)]
    except ValueError:
        return [CompactedRange(int(base), int(end), None) for base, end in parse_lines(content, columns=2)]


def read_ranges(files: FileSystem, directory: Path) -> list[CompactedRange] | None:
    """None if the log has no list. Raises OSError."""
    try:
        return parse_ranges(files.read_bytes(directory / COMPACTED_RANGES))
    except FileNotFoundError:
        return None
    except ValueError:
        return []


def begin_list(files: FileSystem, directory: Path) -> None:
    """Have the log's gaps listed, of which it has none yet. A list that is there stays. Raises OSError."""
    files.open(directory / COMPACTED_RANGES).close()


def write_ranges(
    files: FileSystem, directory: Path, new: Collection[CompactedRange], sizes: Collection[tuple[int, int]]
) -> None:
    """List what a pass makes. Raises OSError.

    What is listed of the pass's sources stays: should the pass come to nothing, they do too. `sizes` has the base
    offset and size of each."""
    known = read_ranges(files, directory) or []
    kept = [each for each in known if each not in new and any(each.is_of(*size) for size in sizes)]
    write_atomically(files, directory / COMPACTED_RANGES, build_ranges([*kept, *new]))

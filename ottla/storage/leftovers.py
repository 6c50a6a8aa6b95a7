"""Files that a crash left half-way in the directory of a log, brought to one side or the other by their suffix.

    .deleted, .tmp    belong to nothing any more, or not yet: removed
    .cleaned          a compacted segment that was not complete: removed
    .log.swap         a compacted segment that was complete: takes the place of those it replaces

A pass of the cleaner makes several segments, which become valid in the order of their offsets. A segment may lack a
tombstone that an earlier one has, as yet, the record for: so while an earlier one is still `.cleaned`, a later one that
is `.swap` already does not count. The segments that it would have replaced are all still there then.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from ottla.storage import checkpoints
from ottla.storage.deletions import DELETED_SUFFIX
from ottla.storage.files import FileSystem
from ottla.storage.scan import InvalidBatchError, scan
from ottla.storage.segment import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
)

BELONGING_TO_NOTHING = (DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp")
LEFT_HALF_WAY = (*BELONGING_TO_NOTHING, SWAP_SUFFIX)


def finish_interrupted_work(files: FileSystem, directory: Path, notices: Callable[[str], None]) -> list[str]:
    """The names in the directory when that is done. Raises OSError."""
    names = files.list_directory(directory)
    if not any(name.endswith(LEFT_HALF_WAY) for name in names):
        return names
    complete = _complete_swaps(names)
    for name in names:
        if name.endswith(SWAP_SUFFIX) and name not in complete:
            files.remove(directory / name)
    # While a .cleaned file is there, the next attempt knows as well that the others do not count.
    files.sync_directory(directory)
    for name in names:
        if name.endswith(BELONGING_TO_NOTHING):
            files.remove(directory / name)
    if complete:
        _finish_swaps(files, directory, bases_of(complete, LOG_SUFFIX + SWAP_SUFFIX), notices)
    return files.list_directory(directory)


def _complete_swaps(names: Sequence[str]) -> list[str]:
    """The `.log.swap` files that count."""
    incomplete = bases_of(names, LOG_SUFFIX + CLEANED_SUFFIX)
    swaps = bases_of(names, LOG_SUFFIX + SWAP_SUFFIX)
    return [file_name(base, LOG_SUFFIX) + SWAP_SUFFIX for base in swaps if not incomplete or base < incomplete[0]]


def _finish_swaps(files: FileSystem, directory: Path, bases: Sequence[int], notices: Callable[[str], None]) -> None:
    end_offsets = _end_offsets(files, directory, bases)
    for base in bases:
        _remove_replaced(files, directory, base, end_offsets[base])
    # Should the new name be durable before the removals are, the old segments would stand beside the new one.
    files.sync_directory(directory)
    for base in bases:
        path = directory / file_name(base, LOG_SUFFIX)
        files.rename(path.with_name(path.name + SWAP_SUFFIX), path)
        notices(f"{directory.name}: finished the compaction of the segment at offset {base}")
    files.sync_directory(directory)
    files.remove(directory / checkpoints.COMPACTED_RANGES)


def _remove_replaced(files: FileSystem, directory: Path, base: int, end_offset: int) -> None:
    for old in bases_of(files.list_directory(directory), LOG_SUFFIX):
        if base <= old < end_offset:
            # Indexes first: one that outlived its log file would be taken for the new segment's.
            for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX):
                files.remove(directory / file_name(old, suffix))
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        files.remove(directory / file_name(base, suffix))


def _end_offsets(files: FileSystem, directory: Path, bases: Sequence[int]) -> dict[int, int]:
    """Where the segments end that each compacted one replaces."""
    try:
        known = checkpoints.parse_ranges(files.read_bytes(directory / checkpoints.COMPACTED_RANGES))
        return {base: known[base] for base in bases}
    except (FileNotFoundError, ValueError, KeyError):
        # Kafka's cleaner leaves no such file. Kafka takes the next one, or for the last one its own end.
        ends = [*bases[1:], *(_end_offset_of(files, directory, base) for base in bases[-1:])]
        return dict(zip(bases, ends, strict=True))


def _end_offset_of(files: FileSystem, directory: Path, base: int) -> int:
    """At least that of an empty segment, so that the segment of the same name goes."""
    file = files.open(directory / (file_name(base, LOG_SUFFIX) + SWAP_SUFFIX))
    end_offset = base + 1
    try:
        for batch in scan(file, 0, file.size(), check_crc=False):
            end_offset = batch.header.next_offset
    except InvalidBatchError:
        pass
    finally:
        file.close()
    return end_offset


def bases_of(names: Sequence[str], suffix: str) -> list[int]:
    """The base offsets of the files `<20 digits><suffix>` among `names`, rising."""
    stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdecimal())

"""What a crash left half-way in the directory of a log: finished or removed when the log is opened, by the suffix.

    .deleted, .tmp    belong to nothing any more, or not yet: removed
    .cleaned          a compacted segment that was not complete: removed
    .log.swap         a compacted segment that was complete: takes the place of those it replaces (`segment_swap`)
    .log.restart      the segment with which a log goes on that was to lose all others (`truncation`): they go

A pass of the cleaner makes several segments, which become valid in the order of their offsets. A segment may lack a
tombstone that an earlier one has, as yet, the record for: so while an earlier one is still `.cleaned`, a later one that
is `.swap` already does not count. The segments that it would have replaced are all still there then.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from ottla.storage.batch_scan import InvalidBatchError, scan
from ottla.storage.compacted_ranges import CompactedRange, read_ranges
from ottla.storage.deletions import DELETED_SUFFIX
from ottla.storage.files import FileSystem
from ottla.storage.segment import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    RESTART_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    file_name,
)

BELONGING_TO_NOTHING = (DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp")
LEFT_HALF_WAY = (*BELONGING_TO_NOTHING, SWAP_SUFFIX, RESTART_SUFFIX)

Notices = Callable[[str], None]


def finish_interrupted_work(
    files: FileSystem, directory: Path, notices: Notices, when_lost: Callable[[], None]
) -> list[str]:
    """The names in the directory when that is done. Raises OSError.

    `when_lost` is called before records are removed that may have been acknowledged."""
    names = files.list_directory(directory)
    if not any(name.endswith(LEFT_HALF_WAY) for name in names):
        return names
    restarts = bases_of(names, LOG_SUFFIX + RESTART_SUFFIX)
    if restarts:
        _finish_restart(files, directory, restarts[-1], notices, when_lost)
        names = files.list_directory(directory)
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


def _finish_restart(
    files: FileSystem, directory: Path, offset: int, notices: Notices, when_lost: Callable[[], None]
) -> None:
    """Records below `offset` are gone at the leader too; what lies beyond it is what a truncation takes away, unless a
    loss of power has brought the name back."""
    names = files.list_directory(directory)
    path = directory / file_name(offset, LOG_SUFFIX)
    begin = path.with_name(path.name + RESTART_SUFFIX)
    beyond = [base for base in bases_of(names, LOG_SUFFIX) if base >= offset]
    if any(files.size(directory / file_name(base, LOG_SUFFIX)) for base in beyond):
        when_lost()
    for suffix in (SNAPSHOT_SUFFIX, *reversed(SEGMENT_SUFFIXES)):
        for base in bases_of(names, suffix):
            files.remove(directory / file_name(base, suffix))
    for name in names:
        if name.endswith(RESTART_SUFFIX) and name != begin.name:
            files.remove(directory / name)
    # Should the new name be durable before the removals are, an old segment could stand beside the new one.
    files.sync_directory(directory)
    files.rename(begin, path)
    files.sync_directory(directory)
    notices(f"{directory.name}: finished dropping all records; the log begins at offset {offset}")


def _complete_swaps(names: Sequence[str]) -> list[str]:
    """The `.log.swap` files that count."""
    incomplete = bases_of(names, LOG_SUFFIX + CLEANED_SUFFIX)
    swaps = bases_of(names, LOG_SUFFIX + SWAP_SUFFIX)
    return [file_name(base, LOG_SUFFIX) + SWAP_SUFFIX for base in swaps if not incomplete or base < incomplete[0]]


def _finish_swaps(files: FileSystem, directory: Path, bases: Sequence[int], notices: Notices) -> None:
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


def _remove_replaced(files: FileSystem, directory: Path, base: int, end_offset: int) -> None:
    for old in bases_of(files.list_directory(directory), LOG_SUFFIX):
        if base <= old < end_offset:
            # Indexes first: one that outlived its log file would be taken for the new segment's.
            for suffix in reversed(SEGMENT_SUFFIXES):
                _remove_if_there(files, directory / file_name(old, suffix))
    for suffix in SEGMENT_SUFFIXES[1:]:
        _remove_if_there(files, directory / file_name(base, suffix))


def _remove_if_there(files: FileSystem, path: Path) -> None:
    if files.exists(path):
        files.remove(path)


def _end_offsets(files: FileSystem, directory: Path, bases: Sequence[int]) -> dict[int, int]:
    """Where the segments end that each compacted one replaces."""
    known: dict[int, int] = {}
    for listed in read_ranges(files, directory) or []:
        # Of two that are alike the later one is the later pass's.
        if listed.base_offset in bases and listed.is_of(listed.base_offset, _swap_size(files, directory, listed)):
            known[listed.base_offset] = listed.end_offset
    if len(known) == len(bases):
        return known
    # Kafka's cleaner makes no list. Kafka takes the next one, or for the last one its own end.
    ends = [*bases[1:], *(_end_offset_of(files, directory, base) for base in bases[-1:])]
    return dict(zip(bases, ends, strict=True))


def _swap_size(files: FileSystem, directory: Path, listed: CompactedRange) -> int:
    return files.size(directory / (file_name(listed.base_offset, LOG_SUFFIX) + SWAP_SUFFIX))


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

"""The file `ottla-failed-sync` of a log: a sync of it failed, and the disk may lack what the cache shows.

After a failed `fsync` Linux takes the pages for clean. They are read as if they were on the disk, and the next `fsync`
succeeds without writing them, also that of another process. So a log takes nothing more after a failed sync, and who
opens it again copies the segments that were not durable before anything of them counts as durable. A restart of the
machine empties the cache; then there is only what the disk has, which recovery checks, and copying it does no harm.

The mark itself is for the same cache, and need not be durable.
"""

from collections.abc import Iterable
from pathlib import Path

from ottla.storage.files import FileSystem

FAILED_SYNC = "ottla-failed-sync"
COPY_BYTES = 1024 * 1024


def mark_failed_sync(files: FileSystem, directory: Path) -> None:
    """Raises OSError where the disk takes not even that."""
    files.open(directory / FAILED_SYNC).close()


def write_again(files: FileSystem, directory: Path, paths: Iterable[Path]) -> None:
    """Where the log is marked, put a synced copy in the place of each file. Raises OSError; the mark is there then."""
    mark = directory / FAILED_SYNC
    if not files.exists(mark):
        return
    for path in paths:
        _copy_in_place(files, path)
    files.sync_directory(directory)
    files.remove(mark)


def _copy_in_place(files: FileSystem, path: Path) -> None:
    aside = path.with_name(path.name + ".tmp")
    files.remove(aside)
    source, copy = files.open(path), files.open(aside)
    try:
        position = 0
        while content := source.pread(COPY_BYTES, position):
            copy.writev([content])
            position += len(content)
        copy.fsync()
    finally:
        source.close()
        copy.close()
    files.rename(aside, path)

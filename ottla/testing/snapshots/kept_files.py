"""Files of which snapshots have hard links, and the cheapest copy of a file.

A hard link is the same file under another name: what is written to it is written to the snapshot. So a snapshot links
only segments that are not appended to any more, and the kept ones stay as they are: before a byte of such a file
changes, by a truncation, an index that is written again or an append, the snapshot gets a copy of its own. The broker's
files say when (`DiskFile`).
Compaction makes new files, and a deletion removes a name; they leave the kept file alone by themselves.
"""

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ottla.storage.files import FILE_MODE

FICLONE: Final = 0x40049409
"""linux/fs.h: the target shares the blocks of the source until one of the two changes them."""
ASIDE: Final = ".aside"

_FileKey = tuple[int, int]
"""Device and inode."""


class KeptFiles:
    def __init__(self) -> None:
        # Invariant: every name that a snapshot has for a file, by the file.
        self._kept: dict[_FileKey, set[Path]] = {}

    def keep(self, source: Path, kept: Path) -> None:
        """`kept` is another name of the file, whose content stays what it is now. Raises OSError."""
        os.link(source, kept)
        self.keep_made(kept)

    def keep_made(self, kept: Path) -> None:
        """As `keep`, of a file that a snapshot has made. Raises OSError."""
        self._kept.setdefault(_key(kept.stat()), set()).add(kept)

    def link(self, kept: str | Path, target: str | Path) -> None:
        """`target` is another name of a kept file, for a log that may change it. Raises OSError."""
        os.link(kept, target)

    def forget(self, names: Iterable[Path]) -> None:
        """These are not kept any more; call it before they are removed."""
        for name in names:
            key = _key(name.stat())
            left = self._kept.get(key, set())
            left.discard(name)
            if not left:
                self._kept.pop(key, None)

    def before_change(self, fd: int) -> None:
        """Gives snapshots a copy of this file, if they have a name of it. Raises OSError; then nothing has changed."""
        names = self._kept.get(_key(os.fstat(fd))) if self._kept else None
        if names is None:
            return
        first, *others = sorted(names)
        aside = first.with_name(first.name + ASIDE)
        copy_file(first, aside, first.stat().st_size)
        aside.replace(first)
        for other in others:
            os.link(first, aside)
            aside.replace(other)
        del self._kept[_key(os.fstat(fd))]
        self._kept[_key(first.stat())] = names


def copy_file(source: str | Path, target: str | Path, size: int) -> None:
    """The first `size` bytes under another name: blocks that both share, where the file system can do that. Raises
    OSError."""
    read = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        written = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            try:
                fcntl.ioctl(written, FICLONE, read)
            except OSError:
                _copy_bytes(read, written, size)
            os.ftruncate(written, size)
        finally:
            os.close(written)
    finally:
        os.close(read)


def _copy_bytes(source: int, target: int, size: int) -> None:
    copied = 0
    try:
        while copied < size and (count := os.copy_file_range(source, target, size - copied, copied, copied)):
            copied += count
    except OSError:
        with open(source, "rb", closefd=False) as read, open(target, "wb", closefd=False) as written:
            read.seek(0)
            written.seek(0)
            from shutil import copyfileobj

            copyfileobj(read, written)


def _key(found: os.stat_result) -> _FileKey:
    return found.st_dev, found.st_ino

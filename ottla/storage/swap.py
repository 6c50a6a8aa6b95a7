"""Compacted segments on their way into the place of those they were made from.

The part that waits for the disk runs in a thread: all new segments get names that count (`.swap`), and those names are
made durable. Then the thread that owns the log puts them in place, one group after another. From the first durable
`.swap` on, recovery finishes what is left; so a log that is cut meanwhile abandons the swap first, and removes them.
"""

import threading
from pathlib import Path
from typing import NamedTuple

from ottla.storage.files import FileSystem
from ottla.storage.segment import SWAP_SUFFIX, Segment


class SwapGroup(NamedTuple):
    """Neighbouring segments and the one that replaces them."""

    old: tuple[Segment, ...]
    new: Segment


class SegmentSwap:
    def __init__(self, files: FileSystem, directory: Path, groups: list[SwapGroup], clean_until: int) -> None:
        self.clean_until = clean_until
        self.error: OSError | None = None
        self.is_abandoned = False
        self._files = files
        self._directory = directory
        # Still to be put in place.
        self._groups = groups
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Name the new segments, durably; in any thread. A failure is kept in `error`."""
        try:
            for group in list(self._groups):
                with self._lock:
                    if self.is_abandoned:
                        return
                    group.new.rename(SWAP_SUFFIX)
            self._files.sync_directory(self._directory)
        except OSError as error:
            self.error = error

    def take_group(self) -> SwapGroup | None:
        """The next one to be put in place; None when all are."""
        return self._groups.pop(0) if self._groups else None

    def abandon(self) -> None:
        """Remove what is not in place yet. Raises OSError; call it again then."""
        with self._lock:
            self.is_abandoned = True
            for group in self._groups:
                for path in group.new.existing_paths():
                    self._files.remove(path)
                group.new.retire()
            self._groups = []

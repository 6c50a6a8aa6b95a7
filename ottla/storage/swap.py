"""Compacted segments on their way into the place of those they were made from.

The parts that wait for the disk run in a thread. `prepare`: all new segments get names that count (`.swap`), and those
names are made durable. Then the thread that owns the log puts the segments in place, one group after another, still
under these names. `sync` makes the removal of the old segments durable: should the final name of a new one be durable
before, an old segment could stand beside it. Then the new segments get their final names.

From the first durable `.swap` on, recovery finishes what is left; so a log that is cut meanwhile abandons the swap
first: what is not in place is removed, what is in place gets its name.
"""

import threading
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

from ottla.storage.checkpoints import COMPACTED_RANGES
from ottla.storage.files import FileSystem
from ottla.storage.gaps import NO_GAPS
from ottla.storage.segment import SWAP_SUFFIX, Segment


class SwapGroup(NamedTuple):
    """Neighbouring segments and the one that replaces them."""

    old: tuple[Segment, ...]
    new: Segment


class SwapStep(Enum):
    """What comes next: another step of the owner, a `sync` in a thread and then another step, or nothing."""

    APPLY = auto()
    SYNC = auto()
    END = auto()


class SegmentSwap:
    def __init__(self, files: FileSystem, directory: Path, groups: list[SwapGroup], clean_until: int) -> None:
        self.clean_until = clean_until
        self.error: OSError | None = None
        self.is_abandoned = False
        self.is_synced = False
        """Whether the removal of the old segments is durable."""
        self._files = files
        self._directory = directory
        # Invariant: a group is in one of these until its new segment has the final name.
        self._to_place = groups
        self._to_name: list[Segment] = []
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Name the new segments, durably; in any thread. A failure is kept in `error`."""
        try:
            if self._files.exists(self._directory / NO_GAPS):
                # Gaps are to come. The log itself takes note of it when it lets the first one in.
                self._files.remove(self._directory / NO_GAPS)
                self._files.sync_directory(self._directory)
            for group in list(self._to_place):
                with self._lock:
                    if self.is_abandoned:
                        return
                    group.new.rename(SWAP_SUFFIX)
            self._files.sync_directory(self._directory)
        except OSError as error:
            self.error = error

    def sync(self) -> None:
        """Make the removal of the old segments durable; in any thread. A failure is kept in `error`."""
        try:
            self._sync()
            # Nothing that it names is left to be removed.
            self._files.remove(self._directory / COMPACTED_RANGES)
        except OSError as error:
            self.error = error

    def _sync(self) -> None:
        self._files.sync_directory(self._directory)
        self.is_synced = True

    def next_step(self) -> SwapStep:
        if self._to_place or (self.is_synced and self._to_name):
            return SwapStep.APPLY
        return SwapStep.SYNC if self._to_name else SwapStep.END

    def place_next(self) -> SwapGroup:
        """The next group to be put in place by the caller."""
        group = self._to_place.pop(0)
        self._to_name.append(group.new)
        return group

    def name_next(self) -> None:
        """Give the next segment its final name. Raises OSError."""
        self._to_name[0].rename("")
        self._to_name.pop(0)

    def abandon(self) -> None:
        """Remove what is not in place yet, and finish the rest. Raises OSError; call it again then."""
        with self._lock:
            self.is_abandoned = True
            # The last one first: recovery may finish an earlier one without the later ones, and not the other way.
            while self._to_place:
                new = self._to_place[-1].new
                for path in new.existing_paths():
                    self._files.remove(path)
                new.retire()
                self._to_place.pop()
        if self._to_name and not self.is_synced:
            # Rare, and nothing may be cut before: a segment of the log must not bear a name that recovery acts upon.
            self._sync()
        while self._to_name:
            self.name_next()

"""Segment swaps: compacted segments on their way into the place of those they were made from.

The parts that wait for the disk run in a thread. `prepare`: all new segments get names that count (`.swap`), and those
names are made durable. Then the thread that owns the log puts the segments in place, one group after another, still
under these names. `sync` makes the removal of the old segments durable: should the final name of a new one be durable
before, an old segment could stand beside it. Then the new segments get their final names. A second `sync` makes these
durable before another pass writes the list of what is replaced: while one segment still is a `.swap`, recovery has to
know that a segment beside it, already under its final name, is not among those to be removed.

From the first durable `.swap` on, recovery finishes what is left; so a log that is truncated in between abandons the
swap first: what is not in place is removed, what is in place gets its name.

What a crash leaves of a swap is finished or removed when the log is opened (`interrupted_work`). A pass of the cleaner
makes several segments, which become valid in the order of their offsets.
"""

import threading
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

from ottla.storage.files import FileSystem, storage_error
from ottla.storage.local_log import NO_GAPS, Gaps, LocalLog
from ottla.storage.producer_snapshots import ProducerSnapshots
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
        self._is_named = False
        """Whether the final names are durable."""
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
        """Make the removal of the old segments durable, or then the names of the new ones; in any thread. A failure is
        kept in `error`."""
        try:
            self._sync()
            if not self._to_name:
                self._is_named = True
        except OSError as error:
            self.error = error

    def _sync(self) -> None:
        self._files.sync_directory(self._directory)
        self.is_synced = True

    def next_step(self) -> SwapStep:
        if self._to_place or (self.is_synced and self._to_name):
            return SwapStep.APPLY
        return SwapStep.END if self._is_named else SwapStep.SYNC

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
                new.close_deleted()
                self._to_place.pop()
        if self._to_name and not self.is_synced:
            # Rare, and nothing may be truncated before: no segment of the log may bear a name that recovery acts upon.
            self._sync()
        while self._to_name:
            self.name_next()


class SegmentSwaps:
    """The swaps of one log, of which one at a time is under way."""

    def __init__(self, local: LocalLog, snapshots: ProducerSnapshots, gaps: Gaps, cleaned_offset: int) -> None:
        self.cleaned_offset = cleaned_offset
        """Where compaction goes on."""
        self._local = local
        self._snapshots = snapshots
        self._gaps = gaps
        self._swap: SegmentSwap | None = None

    def begin_truncation(self) -> None:
        """Call before any segment is truncated or deleted. Raises OSError, and then none may be."""
        if self._swap is not None:
            # Those that are in place get their final names.
            self._local.names_changed()
            self._swap.abandon()
            self._swap = None
        self._local.truncations += 1

    def truncate_from_end(self, log_end_offset: int) -> None:
        self.cleaned_offset = min(self.cleaned_offset, log_end_offset)

    def begin(self, groups: list[SwapGroup], *, clean_until: int) -> SegmentSwap:
        """Put compacted segments, complete and synced, in the place of those they were made from.

        Have the swap `prepare`d in a thread. Then call `apply` until it says END; whenever it says SYNC, have the swap
        `sync`ed in a thread first."""
        assert self._swap is None, "the swap of an earlier pass is over, or was abandoned before this pass began"
        self._swap = SegmentSwap(self._local.files, self._local.directory, groups, clean_until)
        return self._swap

    def abandon(self) -> None:
        """What is not in place by now is not put there. Raises KafkaStorageError."""
        if self._swap is not None:
            self._local.attempt("abandon the compaction of", self.begin_truncation)

    def apply(self, swap: SegmentSwap, now_wall_ms: int) -> SwapStep:
        """Put the next of the new segments in place, or once the removals are durable, give the next one its name.

        Raises KafkaStorageError if the disk has refused the swap, which is abandoned then, or fails now."""
        if swap is not self._swap:
            return SwapStep.END
        if swap.error is not None:
            self.abandon()
            raise storage_error("swap segments of", self._local.directory, swap.error)
        if swap.next_step() is SwapStep.APPLY:
            self._local.guard("swap segments of", lambda: self._apply(swap, now_wall_ms))
        step = swap.next_step()
        if step is SwapStep.END:
            self.cleaned_offset = swap.clean_until
            self._swap = None
        return step

    def _apply(self, swap: SegmentSwap, now_wall_ms: int) -> None:
        local = self._local
        local.names_changed()
        if swap.is_synced:
            swap.name_next()
            return
        # A flush on its way has other segments in mind.
        local.truncations += 1
        self._gaps.note(swap.clean_until)
        group = swap.place_next()
        local.segments.exchange(group.old, [group.new])
        for segment in group.old:
            paths = segment.existing_paths()
            segment.close_deleted()
            local.deletions.schedule_delete(paths, now_wall_ms + local.config.file_delete_delay_ms)
            self._snapshots.remove(segment.base_offset)

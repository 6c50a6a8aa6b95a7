"""Cutting: truncation at the end, deletion at the start, and retention."""

from ottla.protocol.errors import OffsetOutOfRange
from ottla.storage.errors import storage_error
from ottla.storage.log_base import LogBase
from ottla.storage.producer_state import ProducerStateManager
from ottla.storage.retention import Expired, expired_segments
from ottla.storage.segment import Segment
from ottla.storage.swap import SegmentSwap, SwapGroup, SwapStep

# Some milliseconds' worth of the smallest batches.
QUICK_SCAN_BYTES = 128 * 1024
DUE_AT_ONCE = 0


class Cutting(LogBase):
    """The part of a log that shortens it."""

    def truncate_to(self, offset: int) -> None:
        """Drop all batches that end after `offset`. The log then ends at or before it."""
        assert not self._queue, "a log is not cut while batches are queued"
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(offset)
        elif offset < self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
        else:
            self._attempted("truncate", lambda: self._truncate(offset))

    def _truncate(self, offset: int) -> None:
        n = self.segments.index_of(offset)
        keeper, following = self.segments[n], list(self.segments)[n + 1 :]
        position, end_offset = keeper.cut_point(offset)
        if end_offset < self.log_start_offset:
            # The batch that goes holds the log start, and what is before the start is deleted already.
            self._restart_at(self.log_start_offset)
            return
        knows_producers = not following and self._is_without_producers(keeper, position)
        self._begin_cut()
        self.snapshots.remove_above(end_offset)
        self._drop_from_end(following)
        keeper.truncate(position, end_offset)
        self._set_active(keeper)
        self._end_at(end_offset)
        if not knows_producers:
            self._forget_producers()

    def _is_without_producers(self, segment: Segment, position: int) -> bool:
        """Whether no batch from `position` on is of an idempotent producer: known, or quickly found out."""
        if self.has_producers_loaded and not self.producers:
            return True
        if segment.size - position > QUICK_SCAN_BYTES:
            return False
        return all(batch.header.producer_id < 0 for batch in segment.batches_from(position))

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log goes on, empty, at `offset`."""
        assert not self._queue, "a log is not cut while batches are queued"
        self._attempted("truncate", lambda: self._restart_at(offset))

    def _restart_at(self, offset: int) -> None:
        first, *following = self.segments
        self._begin_cut()
        self.snapshots.remove_above(-1)
        self._drop_from_end(following)
        self.deletions.condemn(first.existing_paths(), DUE_AT_ONCE)
        first.retire()
        new = Segment.create_or_defer(self.files, self.directory, offset)
        self.segments.exchange([first], [new])
        self._set_active(new)
        self.log_start_offset = offset
        self._end_at(offset)
        self.producers = ProducerStateManager(self.config.producer_id_expiration_ms)

    def _end_at(self, end_offset: int) -> None:
        self.log_end_offset = self._next_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.sync_required_offset = min(self.sync_required_offset, end_offset)
        self.gaps.truncate_from_end(end_offset)
        self.cleaned_offset = min(self.cleaned_offset, end_offset)
        self.epochs.truncate_from_end(end_offset)

    def _drop_from_end(self, segments: list[Segment]) -> None:
        """Drop the last segments, the last first. Raises OSError; the log then ends where those that went began."""
        dropped: list[Segment] = []
        try:
            for segment in reversed(segments):
                self.deletions.condemn(segment.existing_paths(), DUE_AT_ONCE)
                segment.retire()
                dropped.append(segment)
        except OSError:
            self._guarded("truncate", lambda: self._end_before(dropped))
            raise
        self._end_before(dropped)

    def _end_before(self, dropped: list[Segment]) -> None:
        if dropped:
            self.segments.exchange(dropped, [])
            self.segments.active.begin_timestamp()
            self._set_active(self.segments.active)
            self._end_at(dropped[-1].base_offset)
            self._forget_producers()

    def delete_records_before(self, offset: int) -> None:
        """Raise the log start offset; segments below it go with the next retention pass. Raises OffsetOutOfRange."""
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(f"offset {offset} is above log end offset {self.log_end_offset}")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    def apply_retention(self, now_wall_ms: int, high_watermark: int) -> list[Expired]:
        """Give up old segments: what went, and why. Their files are renamed now and due for removal later."""
        removed: list[Expired] = []
        while (expired := self._expired(now_wall_ms, high_watermark)) is not None:
            self._expire(expired, now_wall_ms)
            removed.append(expired)
        return removed

    def _expired(self, now_wall_ms: int, high_watermark: int) -> Expired | None:
        if self.failure is not None:
            raise self.failure
        try:
            return expired_segments(
                self.segments,
                self.config,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=high_watermark,
                now_wall_ms=now_wall_ms,
            )
        except OSError as error:
            raise storage_error("look for old segments of", self.directory, error) from error

    def _expire(self, expired: Expired, now_wall_ms: int) -> None:
        if expired.segments[-1] is self._active:
            self.roll()
        going = list(expired.segments)
        kept_from = self.segments[len(going)].base_offset
        self.delete_records_before(kept_from)
        self._attempted("delete old segments of", lambda: self._condemn(going, now_wall_ms))

    def _condemn(self, segments: list[Segment], now_wall_ms: int) -> None:
        """Oldest first. Raises OSError; those that could not be renamed stay in the log."""
        self._begin_cut()
        gone: list[Segment] = []
        try:
            for segment in segments:
                self.deletions.condemn(segment.existing_paths(), now_wall_ms + self.config.file_delete_delay_ms)
                segment.retire()
                gone.append(segment)
        finally:
            self.segments.exchange(gone, [])
            self._directory_changed = True
        for segment in gone:
            self.snapshots.remove(segment.base_offset)

    def _begin_cut(self) -> None:
        """Raises OSError, and then nothing may be cut."""
        if self._swap is not None:
            self._swap.abandon()
            self._swap = None
        self.cuts += 1

    # Compacted segments

    def begin_swap(self, groups: list[SwapGroup], *, clean_until: int) -> SegmentSwap:
        """Put compacted segments, complete and synced, in the place of those they were made from.

        Have the swap `prepare`d in a thread. Then call `apply_swap` until it says END; whenever it says SYNC, have the
        swap `sync`ed in a thread first. Raises KafkaStorageError."""
        self.abandon_swap()
        self._swap = SegmentSwap(self.files, self.directory, groups, clean_until)
        return self._swap

    def abandon_swap(self) -> None:
        """What is not in place by now is not put there. Raises KafkaStorageError."""
        if self._swap is not None:
            self._attempted("abandon the compaction of", self._begin_cut)

    def apply_swap(self, swap: SegmentSwap, now_wall_ms: int) -> SwapStep:
        """Put the next of the new segments in place, or once the removals are durable, give the next one its name.

        Raises KafkaStorageError if the disk has refused the swap, which is abandoned then, or fails now."""
        if swap is not self._swap:
            return SwapStep.END
        if swap.error is not None:
            self.abandon_swap()
            raise storage_error("swap segments of", self.directory, swap.error)
        if swap.next_step() is SwapStep.APPLY:
            self._guarded("swap segments of", lambda: self._apply(swap, now_wall_ms))
        step = swap.next_step()
        if step is SwapStep.END:
            self.cleaned_offset = swap.clean_until
            self._swap = None
        return step

    def _apply(self, swap: SegmentSwap, now_wall_ms: int) -> None:
        self._directory_changed = True
        if swap.is_synced:
            swap.name_next()
            return
        # A flush on its way has other segments in mind.
        self.cuts += 1
        self._note_gaps(swap.clean_until)
        group = swap.place_next()
        self.segments.exchange(group.old, [group.new])
        for segment in group.old:
            paths = segment.existing_paths()
            segment.retire()
            self.deletions.condemn(paths, now_wall_ms + self.config.file_delete_delay_ms)
            self.snapshots.remove(segment.base_offset)

    def _remove_unused(self, segment: Segment) -> None:
        """Take an empty active segment out, so that the one before it is appended to again. Raises OSError."""
        self._begin_cut()
        self.deletions.condemn(segment.existing_paths(), DUE_AT_ONCE)
        segment.retire()
        self.segments.exchange([segment], [])
        self.snapshots.remove(segment.base_offset)
        self._set_active(self.segments.active)

"""Cutting: truncation at the end, deletion at the start, and retention."""

from ottla.protocol.errors import OffsetOutOfRange
from ottla.storage.errors import storage_error
from ottla.storage.log_base import LogBase
from ottla.storage.producer_snapshots import rebuild_producers
from ottla.storage.retention import Expired, expired_segments
from ottla.storage.segment import SWAP_SUFFIX, Segment


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
            self._guarded("truncate", lambda: self._truncate(offset))

    def _truncate(self, offset: int) -> None:
        self.cuts += 1
        keeper = self.segments[self.segments.index_of(offset)]
        following = [segment for segment in self.segments if segment.base_offset > keeper.base_offset]
        if following:
            self._drop(following)
            # A segment must not be cut on the disk while one that follows on it is still there.
            self.files.sync_directory(self.directory)
        position, end_offset = keeper.cut_point(offset)
        if end_offset < self.log_start_offset:
            # The batch that goes holds the log start, and what is before the start is deleted already.
            self._restart_at(self.log_start_offset)
            return
        keeper.truncate(position, self._index_interval)
        self._set_active(keeper)
        self._end_at(end_offset)
        self.snapshots.remove_above(end_offset)
        rebuild_producers(self.producers, self.snapshots, self.segments, end_offset, self._seen_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log goes on, empty, at `offset`."""
        assert not self._queue, "a log is not cut while batches are queued"
        self._guarded("truncate", lambda: self._restart_at(offset))

    def _restart_at(self, offset: int) -> None:
        self.cuts += 1
        old = list(self.segments)
        for segment in reversed(old):
            self._remove_files(segment)
        new = Segment.create(self.files, self.directory, offset)
        self.segments.exchange(old, [new])
        self._set_active(new)
        self.log_start_offset = offset
        self._end_at(offset)
        self.snapshots.remove_above(-1)
        self.producers.clear()

    def _end_at(self, end_offset: int) -> None:
        self.log_end_offset = self._next_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.sync_required_offset = min(self.sync_required_offset, end_offset)
        self.gaps_until = min(self.gaps_until, end_offset)
        self.cleaned_offset = min(self.cleaned_offset, end_offset)
        self.epochs.truncate_from_end(end_offset)

    def _drop(self, segments: list[Segment]) -> None:
        for segment in reversed(segments):
            self._remove_files(segment)
        self.segments.exchange(segments, [])

    def _remove_files(self, segment: Segment) -> None:
        paths = segment.existing_paths()
        segment.retire()
        for path in reversed(paths):
            self.files.remove(path)

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
        self._guarded("delete old segments of", lambda: self._condemn(going, now_wall_ms))

    def _condemn(self, segments: list[Segment], now_wall_ms: int) -> None:
        self.segments.exchange(segments, [])
        self.cuts += 1
        self._directory_changed = True
        self._condemn_files(segments, now_wall_ms)

    def _condemn_files(self, segments: list[Segment], now_wall_ms: int) -> None:
        for segment in segments:
            paths = segment.existing_paths()
            segment.retire()
            self.deletions.condemn(paths, now_wall_ms + self.config.file_delete_delay_ms)
            self.snapshots.remove(segment.base_offset)

    def replace_segments(
        self, groups: list[tuple[tuple[Segment, ...], Segment]], *, clean_until: int, now_wall_ms: int
    ) -> None:
        """Put compacted segments, complete and synced, in the place of those they were made from."""
        self._guarded("swap segments of", lambda: self._swap(groups, now_wall_ms))
        self.cleaned_offset = clean_until
        self.gaps_until = max(self.gaps_until, clean_until)

    def _swap(self, groups: list[tuple[tuple[Segment, ...], Segment]], now_wall_ms: int) -> None:
        self.cuts += 1
        # The batches that go may be all that recovery could take an epoch from.
        write_epochs = self._epoch_file.begin_write(self.epochs, self.log_end_offset)
        if write_epochs is not None:
            write_epochs()
        for _, new in groups:
            new.rename(SWAP_SUFFIX)
        # From here on, recovery finishes what is left of this.
        self.files.sync_directory(self.directory)
        for old, new in groups:
            self.segments.exchange(old, [new])
            self._condemn_files(list(old), now_wall_ms)
            new.rename("")
        self.files.sync_directory(self.directory)

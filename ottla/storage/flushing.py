"""Flushing: what has to be synced when, and what is durable since."""

from ottla.storage.checkpoints import PARTITION_METADATA
from ottla.storage.errors import storage_error
from ottla.storage.flusher import FlushWork
from ottla.storage.log_base import LogBase
from ottla.storage.segment import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX


class Flushing(LogBase):
    """The part of a log that makes it durable."""

    @property
    def needs_flush(self) -> bool:
        """Whether acknowledgements wait: of offsets below `sync_required_offset`, until `flushed_offset` is there."""
        return self.flushed_offset < self.sync_required_offset

    def is_flush_overdue(self, now_wall_ms: int) -> bool:
        """Whether to flush although no acknowledgement waits: for `flush.ms`, or because a segment is complete."""
        if self.flushed_offset < self._active.base_offset:
            return True
        return self._waits_for_sync and self.flushed_offset < self.log_end_offset and self._is_sync_due(now_wall_ms)

    def _is_sync_due(self, now_wall_ms: int) -> bool:
        config = self.config
        return (
            self.log_end_offset - self.flushed_offset >= config.flush_messages
            or now_wall_ms - self._oldest_unflushed_ms >= config.flush_ms
        )

    def flush(self) -> int:
        """Make everything written durable, here and now; the recovery point, which is the log end offset."""
        work = self.begin_flush()
        work.run()
        self.finish_flush(work)
        return self.flushed_offset

    def begin_flush(self) -> FlushWork:
        """What to sync for all that is written by now. `run` it in a thread, then hand it to `finish_flush`."""
        if self.failure is not None:
            raise self.failure
        unflushed = [segment for segment in self.segments if not segment.is_flushed]
        paths = [segment.path(kind) for segment in unflushed[:-1] for kind in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
        paths += [self.snapshots.path(segment.base_offset) for segment in unflushed]
        try:
            log_files = [segment.file.duplicate() for segment in unflushed]
        except OSError as error:
            raise storage_error("flush", self.directory, error) from error
        changed, self._directory_changed = self._directory_changed, False
        if changed:
            # Whose log it is must be known as long as anything in it is promised to be there.
            paths.append(self.directory / PARTITION_METADATA)
        return FlushWork(
            self.files,
            end_offset=self.log_end_offset,
            cuts=self.cuts,
            log_files=log_files,
            epochs=self._epoch_file.begin_write(self.epochs, self.log_end_offset),
            other_paths=paths,
            directory=self.directory if changed else None,
            flushed_segments=tuple(unflushed[:-1]),
        )

    def finish_flush(self, work: FlushWork) -> None:
        """Take note of what is durable now. A log that was cut meanwhile has to be flushed again.

        Raises KafkaStorageError if the flush failed. If a sync failed, the kernel may have dropped what it could not
        write, and the log refuses everything until it has been recovered. If a file could not be opened for want of
        descriptors, or the leader epochs could not be written, nothing is lost, and the next flush does it again.
        """
        if work.sync_error is not None:
            raise self._fail(storage_error("flush", self.directory, work.sync_error)) from work.sync_error
        if work.cuts != self.cuts or (work.open_error is not None and work.directory is not None):
            self._directory_changed = True
        if work.open_error is not None:
            raise storage_error("flush", self.directory, work.open_error) from work.open_error
        if work.cuts != self.cuts:
            return
        for segment in work.flushed_segments:
            segment.is_flushed = True
        if work.epochs_error is not None:
            raise storage_error("write the leader epochs of", self.directory, work.epochs_error) from work.epochs_error
        self.flushed_offset = max(self.flushed_offset, work.end_offset)

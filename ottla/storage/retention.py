"""Retention: old segments are deleted when they are too old, too many, or below the log start offset."""

from collections.abc import Callable
from typing import NamedTuple

from ottla.protocol.errors import OffsetOutOfRange
from ottla.storage.append_queue import AppendQueue
from ottla.storage.files import storage_error
from ottla.storage.leader_epoch_cache import LeaderEpochCache
from ottla.storage.local_log import LocalLog, Segments
from ottla.storage.log_config import LogConfig
from ottla.storage.log_producers import ProducerSnapshots
from ottla.storage.segment import Segment
from ottla.storage.segment_swap import SegmentSwaps


class Expired(NamedTuple):
    """The oldest segments of a log that have to go, and why."""

    segments: tuple[Segment, ...]
    reason: str

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)


class Retention:
    """The part of a log that shortens it at its start."""

    def __init__(
        self,
        local: LocalLog,
        queue: AppendQueue,
        epochs: LeaderEpochCache,
        snapshots: ProducerSnapshots,
        swaps: SegmentSwaps,
    ) -> None:
        self._local = local
        self._queue = queue
        self._epochs = epochs
        self._snapshots = snapshots
        self._swaps = swaps

    def delete_records_before(self, offset: int) -> None:
        """Raise the log start offset; segments below it go with the next retention pass. Raises OffsetOutOfRange."""
        local = self._local
        if offset > local.log_end_offset:
            raise OffsetOutOfRange(f"offset {offset} is above log end offset {local.log_end_offset}")
        if offset > local.log_start_offset:
            local.log_start_offset = offset
            self._epochs.truncate_from_start(offset)

    def apply(self, now_wall_ms: int, high_watermark: int) -> list[Expired]:
        """Delete old segments: which, and why. Their files are renamed now and due for removal later."""
        removed: list[Expired] = []
        while (expired := self._expired(now_wall_ms, high_watermark)) is not None:
            self._expire(expired, now_wall_ms)
            removed.append(expired)
        return removed

    def _expired(self, now_wall_ms: int, high_watermark: int) -> Expired | None:
        local = self._local
        if local.failure is not None:
            raise local.failure
        try:
            return expired_segments(
                local.segments,
                local.config,
                log_start_offset=local.log_start_offset,
                log_end_offset=local.log_end_offset,
                high_watermark=high_watermark,
                now_wall_ms=now_wall_ms,
            )
        except OSError as error:
            raise storage_error("look for old segments of", local.directory, error) from error

    def _expire(self, expired: Expired, now_wall_ms: int) -> None:
        local = self._local
        if expired.segments[-1] is local.active:
            self._queue.roll()
        oldest = list(expired.segments)
        self.delete_records_before(local.segments[len(oldest)].base_offset)
        local.attempt("delete old segments of", lambda: self._delete(oldest, now_wall_ms))

    def _delete(self, segments: list[Segment], now_wall_ms: int) -> None:
        """Oldest first. Raises OSError; those that could not be renamed stay in the log."""
        local = self._local
        self._swaps.begin_truncation()
        deleted: list[Segment] = []
        try:
            for segment in segments:
                local.schedule_delete(segment, now_wall_ms + local.config.file_delete_delay_ms)
                deleted.append(segment)
        finally:
            local.segments.exchange(deleted, [])
            local.directory_changed = True
        for segment in deleted:
            self._snapshots.remove(segment.base_offset)


def expired_segments(
    segments: Segments,
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_wall_ms: int,
) -> Expired | None:
    """The next segments to delete, for one reason; ask again after that. None when all may stay.

    Nothing at or above the high watermark is given up, nor an empty active segment.
    """

    def oldest_that(is_expired: Callable[[Segment, int], bool]) -> tuple[Segment, ...]:
        chosen: list[Segment] = []
        for n, segment in enumerate(segments):
            end_offset = segments.end_of(n, log_end_offset)
            is_unused = segment.size == 0 and segment is segments.active
            if is_unused or end_offset > high_watermark or not is_expired(segment, end_offset):
                break
            chosen.append(segment)
        return tuple(chosen)

    below_start = oldest_that(lambda _, end_offset: end_offset <= log_start_offset)
    if below_start:
        return Expired(below_start, f"below log start offset {log_start_offset}")
    if not config.deletes_old_segments:
        return None
    if config.retention_ms >= 0:
        too_old = oldest_that(lambda segment, _: largest_timestamp(segment) < now_wall_ms - config.retention_ms)
        if too_old:
            return Expired(too_old, f"older than retention.ms {config.retention_ms}")
    if config.retention_bytes >= 0:
        excess = segments.size_bytes - config.retention_bytes

        def is_excess(segment: Segment, _: int) -> bool:
            nonlocal excess
            excess -= segment.size
            return excess >= 0

        too_many = oldest_that(is_excess)
        if too_many:
            return Expired(too_many, f"beyond retention.bytes {config.retention_bytes}")
    return None


def largest_timestamp(segment: Segment) -> int:
    """The newest record's, or when the file was last written if no record carries one."""
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.last_modified_ms()

"""Retention: old segments are deleted when they are too old, too many, or below the log start offset.

First the log start offset rises above them (`expire`). When the checkpoint of log starts says so, their files are
renamed (`delete_expired`). For a disk may keep no order between names: after a loss of power some of the segments may
be back, with holes between them. Recovery removes what lies below the log start.
"""

from collections.abc import Callable
from typing import NamedTuple

from ottla.protocol.errors import OffsetOutOfRange
from ottla.storage.append_queue import AppendQueue
from ottla.storage.files import storage_error
from ottla.storage.leader_epoch_cache import LeaderEpochCache
from ottla.storage.local_log import LocalLog, Segments
from ottla.storage.log_config import LogConfig
from ottla.storage.producer_snapshots import ProducerSnapshots
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

    def expire(self, now_wall_ms: int, high_watermark: int) -> list[Expired]:
        """Raise the log start offset above old segments: which segments are below it now, and why."""
        segments = self._local.segments
        expired: list[Expired] = []
        begin = 0
        while (found := self._next_expired(begin, now_wall_ms, high_watermark)) is not None:
            if found.segments[-1] is self._local.active:
                self._queue.roll()
            expired.append(found)
            begin += len(found.segments)
            self.delete_records_before(segments[begin].base_offset)
        return expired

    def _next_expired(self, begin: int, now_wall_ms: int, high_watermark: int) -> Expired | None:
        local = self._local
        if local.failure is not None:
            raise local.failure
        try:
            return expired_segments(
                local.segments,
                local.config,
                begin,
                log_start_offset=local.log_start_offset,
                log_end_offset=local.log_end_offset,
                high_watermark=high_watermark,
                now_wall_ms=now_wall_ms,
            )
        except OSError as error:
            raise storage_error("look for old segments of", local.directory, error) from error

    def delete_expired(self, offset: int, now_wall_ms: int) -> None:
        """Delete the segments below `offset`, which the checkpoint has as the log start. Their files are renamed now
        and due for removal later. Those whose producers are in no snapshot yet stay for the next time."""
        local = self._local
        # The log may have been restarted at a lower one since.
        offset = min(offset, local.log_start_offset)
        inactive = local.segments.up_to_active()
        ends = [segment.base_offset for segment in list(local.segments)[1:]]
        oldest = [segment for segment, end in zip(inactive, ends, strict=True) if end <= offset]
        while oldest and self._snapshots.is_missing(ends[len(oldest) - 1]):
            oldest.pop()
        if oldest:
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
            local.names_changed()
            local.is_start_durable = False
        for segment in deleted:
            self._snapshots.remove(segment.base_offset)


def expired_segments(
    segments: Segments,
    config: LogConfig,
    begin: int = 0,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_wall_ms: int,
) -> Expired | None:
    """The next segments to delete, from the `begin`-th on, for one reason. None when all others may stay.

    Nothing at or above the high watermark is given up, nor an empty active segment.
    """
    candidates = list(enumerate(segments))[begin:]

    def oldest_that(is_expired: Callable[[Segment, int], bool]) -> tuple[Segment, ...]:
        chosen: list[Segment] = []
        for n, segment in candidates:
            end_offset = segments.end_of(n, log_end_offset)
            is_unused = segment.size == 0 and segment is segments.active
            if is_unused or end_offset > high_watermark or not is_expired(segment, end_offset):
                break
            chosen.append(segment)
        return tuple(chosen)

    if below_start := oldest_that(lambda _, end_offset: end_offset <= log_start_offset):
        return Expired(below_start, f"below log start offset {log_start_offset}")
    if not config.deletes_old_segments:
        return None
    if config.retention_ms >= 0:
        too_old = oldest_that(lambda segment, _: largest_timestamp(segment) < now_wall_ms - config.retention_ms)
        if too_old:
            return Expired(too_old, f"older than retention.ms {config.retention_ms}")
    if config.retention_bytes >= 0:
        excess = sum(segment.size for _, segment in candidates) - config.retention_bytes

        def is_excess(segment: Segment, _: int) -> bool:
            nonlocal excess
            excess -= segment.size
            return excess >= 0

        if too_many := oldest_that(is_excess):
            return Expired(too_many, f"beyond retention.bytes {config.retention_bytes}")
    return None


def largest_timestamp(segment: Segment) -> int:
    """The newest record's, or when the file was last written if no record carries one."""
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.last_modified_ms()

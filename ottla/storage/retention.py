"""Which segments are too old, too many, or below the log start: decisions only."""

from collections.abc import Callable
from typing import NamedTuple

from ottla.storage.config import LogConfig
from ottla.storage.segment import Segment
from ottla.storage.segments import Segments


class Expired(NamedTuple):
    """The oldest segments of a log that have to go, and why."""

    segments: tuple[Segment, ...]
    reason: str

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)


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
        oldest_kept_ms = now_wall_ms - config.retention_ms
        too_old = oldest_that(lambda segment, _: largest_timestamp(segment) < oldest_kept_ms)
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

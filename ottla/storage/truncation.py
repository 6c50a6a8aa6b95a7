"""Truncation: a log loses records from its end, or all of them.

Wherever the disk refuses, the log stays whole, perhaps longer than asked for; so a truncation may be tried again.
"""

from functools import partial

from ottla.storage.deletions import DUE_AT_ONCE
from ottla.storage.durability import Durability
from ottla.storage.leader_epoch_cache import LeaderEpochCache
from ottla.storage.local_log import Gaps, LocalLog
from ottla.storage.log_producers import LogProducers
from ottla.storage.segment import Segment
from ottla.storage.segment_swap import SegmentSwaps

# Some milliseconds' worth of the smallest batches.
QUICK_SCAN_BYTES = 128 * 1024


class Truncation:
    """The part of a log that shortens it at its end. Nothing may be queued then."""

    def __init__(
        self,
        local: LocalLog,
        producers: LogProducers,
        epochs: LeaderEpochCache,
        gaps: Gaps,
        durability: Durability,
        swaps: SegmentSwaps,
    ) -> None:
        self._local = local
        self._producers = producers
        self._snapshots = producers.snapshots
        self._epochs = epochs
        self._gaps = gaps
        self._durability = durability
        self._swaps = swaps

    def truncate_to(self, offset: int) -> None:
        """Drop all batches that end after `offset`. The log then ends at or before it."""
        local = self._local
        assert local.next_offset == local.log_end_offset, "a log is not truncated while batches are queued"
        if offset >= local.log_end_offset:
            self._epochs.truncate_from_end(offset)
        elif offset < local.log_start_offset:
            self.truncate_fully_and_start_at(offset)
        else:
            local.attempt("truncate", partial(self._truncate, offset))

    def _truncate(self, offset: int) -> None:
        local = self._local
        n = local.segments.index_of(offset)
        keeper, following = local.segments[n], list(local.segments)[n + 1 :]
        position, end_offset = keeper.cut_point(offset)
        if end_offset < local.log_start_offset:
            # The batch that goes holds the log start, and what is before the start is deleted already.
            self._restart_at(local.log_start_offset)
            return
        knows_producers = not following and self._is_without_producers(keeper, position)
        self._swaps.begin_truncation()
        self._snapshots.remove_above(end_offset)
        self._drop_from_end(following)
        keeper.truncate(position, end_offset)
        local.set_active(keeper)
        self._end_at(end_offset)
        if not knows_producers:
            self._producers.forget()

    def _is_without_producers(self, segment: Segment, position: int) -> bool:
        """Whether no batch from `position` on is of an idempotent producer: known, or quickly found out."""
        if self._producers.has_none:
            return True
        if segment.size - position > QUICK_SCAN_BYTES:
            return False
        return all(batch.header.producer_id < 0 for batch in segment.batches_from(position))

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log goes on, empty, at `offset`."""
        local = self._local
        assert local.next_offset == local.log_end_offset, "a log is not truncated while batches are queued"
        local.attempt("truncate", lambda: self._restart_at(offset))

    def _restart_at(self, offset: int) -> None:
        local = self._local
        self._swaps.begin_truncation()
        self._snapshots.remove_above(-1)
        local.restart_at(offset)
        self._end_at(offset)
        self._producers.clear()

    def _drop_from_end(self, segments: list[Segment]) -> None:
        """Drop the last segments, the last first. Raises OSError; the log then ends where those that went began."""
        dropped: list[Segment] = []
        try:
            for segment in reversed(segments):
                self._local.schedule_delete(segment, DUE_AT_ONCE)
                dropped.append(segment)
        except OSError:
            self._local.guard("truncate", lambda: self._end_before(dropped))
            raise
        self._end_before(dropped)

    def _end_before(self, dropped: list[Segment]) -> None:
        if dropped:
            segments = self._local.segments
            segments.exchange(dropped, [])
            segments.active.begin_timestamp()
            self._local.set_active(segments.active)
            self._end_at(dropped[-1].base_offset)
            self._producers.forget()

    def _end_at(self, end_offset: int) -> None:
        self._local.set_end(end_offset)
        self._durability.truncate_from_end(end_offset)
        self._gaps.truncate_from_end(end_offset)
        self._swaps.truncate_from_end(end_offset)
        self._epochs.truncate_from_end(end_offset)

"""Finding records by their time. These read the disk and wait for it; they change nothing, so a thread may run them."""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.protocol.records.record import iterate_records
from ottla.storage.scan import ScannedBatch
from ottla.storage.segment import Segment
from ottla.storage.segments import Segments


class FoundTimestamp(NamedTuple):
    """A record, by what ListOffsets says of it."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(
    segments: Segments, timestamp: int, *, log_start_offset: int, upper_bound: int
) -> FoundTimestamp | None:
    """The first record not older than `timestamp`, at or after the log start and below `upper_bound`."""
    for segment in segments:
        if segment.size == 0 or segment.max_timestamp < timestamp:
            continue
        relative = segment.time_index.offset_before(timestamp)
        position = segment.anchor_for(segment.base_offset + relative).position
        for batch in segment.batches_from(position):
            if batch.header.base_offset >= upper_bound:
                return None
            if batch.header.max_timestamp >= timestamp and batch.header.last_offset >= log_start_offset:
                found = _first_record(batch, timestamp, log_start_offset, upper_bound)
                if found is not None:
                    return found
    return None


def with_largest_timestamp(
    segments: Iterable[Segment], *, log_start_offset: int, upper_bound: int
) -> FoundTimestamp | None:
    """The first of the records that carry the largest timestamp."""
    best: FoundTimestamp | None = None
    for segment in segments:
        if segment.size == 0 or (best is not None and segment.max_timestamp <= best.timestamp):
            continue
        if segment.max_timestamp_offset < upper_bound:
            position = segment.anchor_for(segment.max_timestamp_offset).position
        else:
            position = 0
        best = _largest_in(segment, position, log_start_offset, upper_bound, best)
    return best


def _largest_in(
    segment: Segment, position: int, log_start_offset: int, upper_bound: int, best: FoundTimestamp | None
) -> FoundTimestamp | None:
    for batch in segment.batches_from(position):
        if batch.header.base_offset >= upper_bound:
            break
        if batch.header.last_offset >= log_start_offset and (
            best is None or batch.header.max_timestamp > best.timestamp
        ):
            found = _first_record(batch, batch.header.max_timestamp, log_start_offset, upper_bound)
            if found is not None and (best is None or found.timestamp > best.timestamp):
                best = found
    return best


def _first_record(
    batch: ScannedBatch, timestamp: int, log_start_offset: int, upper_bound: int
) -> FoundTimestamp | None:
    if batch.header.is_control:
        return None
    for record in iterate_records(batch.view):
        if record.timestamp >= timestamp and log_start_offset <= record.offset < upper_bound:
            return FoundTimestamp(record.timestamp, record.offset, batch.header.partition_leader_epoch)
    return None

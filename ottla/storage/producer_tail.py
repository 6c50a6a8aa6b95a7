"""What a producer snapshot leaves out: of each producer it holds the last batch, and up to four before it may still be
sent again. They are in the log, right before the offset of the snapshot.

They are read when a batch comes that does not follow on what is known of its producer, once for a log that was opened.
So an open log costs nothing, and a client that sends such batches on purpose costs one look.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.protocol.records.batch import CONTROL_BIT, BatchHeader
from ottla.storage.batch_scan import InvalidBatchError, indexable, scan
from ottla.storage.local_log import Segments
from ottla.storage.producer_state import ProducerStateManager
from ottla.storage.producer_table import ProducerTable
from ottla.storage.segment import Segment

BATCHES_MAX = 500
"""Reading them takes some milliseconds of the event loop."""
BYTES_MAX = 8 * 1024 * 1024
"""The last five batches of a producer fit in, of the largest size that a topic allows by default."""
STRETCH_BYTES = 16 * 1024


def producers_before(segments: Segments, offset: int, now_wall_ms: int) -> ProducerTable:
    """The producers of the last batches before `offset`, some `BATCHES_MAX` of them or `BYTES_MAX`.

    A damaged batch ends the look backward, for what it says may be wrong. Raises OSError."""
    found: list[list[BatchHeader]] = []
    count = size = 0
    try:
        for stretch in _stretches_before(segments, offset):
            size += stretch.end - stretch.start
            if count >= BATCHES_MAX or size > BYTES_MAX:
                break
            found.append(_headers(stretch))
            count += len(found[-1])
    except InvalidBatchError:
        pass
    producers = ProducerStateManager()
    for headers in reversed(found):
        for header in headers:
            # A marker is no batch that comes again.
            if not header.attributes & CONTROL_BIT:
                producers.update(header, header.base_offset, now_wall_ms)
                producers.confirm()
    return producers.states


class _Stretch(NamedTuple):
    """Whole batches: the positions of the first one, and behind the last one."""

    segment: Segment
    start: int
    end: int


def _stretches_before(segments: Segments, offset: int) -> Iterator[_Stretch]:
    """The newest first; each as long as `STRETCH_BYTES` and the distance of two entries of the index."""
    n = segments.index_of(offset)
    end, _ = segments[n].cut_point(offset)
    while True:
        segment = segments[n]
        while end > 0:
            entries = segment.offset_index
            before = entries.count_below(end - STRETCH_BYTES + 1)
            start = entries.entry(before - 1)[1] if before else 0
            yield _Stretch(segment, start, end)
            end = start
        if n == 0:
            return
        n -= 1
        end = segments[n].size


def _headers(stretch: _Stretch) -> list[BatchHeader]:
    batches = indexable(scan(stretch.segment.file, stretch.start, stretch.end), stretch.segment.base_offset)
    return [batch.header for batch in batches]

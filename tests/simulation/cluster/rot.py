"""A bit of a record that all replicas have flips on a disk.

Base offset and leader epoch of a batch lie outside its checksum: in Kafka's format nothing can show that one of them
has flipped, as long as it still fits between those of the batches around it. No broker can be asked to notice that, so
it does not happen here.
"""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ottla.protocol.records.batch import CRC_COVERS_FROM, BatchHeader

BASE_OFFSET = range(8)
LEADER_EPOCH = range(12, 16)
UNLIMITED = 1 << 62


class Place(NamedTuple):
    """A batch on the disk, and what the batches around it say."""

    path: Path
    position: int
    header: BatchHeader
    offsets: range
    """Where it could lie: the same, or more if it follows or precedes a gap."""
    leader_epochs: range
    """That it could have."""

    def is_noticed(self, byte: int, bit: int) -> bool:
        """Whether anything contradicts the batch with that bit flipped."""
        if byte in BASE_OFFSET:
            base = self.header.base_offset ^ 1 << 8 * (7 - byte) + bit
            return base not in self.offsets or base + self.header.last_offset_delta not in self.offsets
        if byte in LEADER_EPOCH:
            return self.header.partition_leader_epoch ^ 1 << 8 * (15 - byte) + bit not in self.leader_epochs
        return True


def places_of(log: Any, high_watermark: int) -> Iterable[Place]:
    """The committed batches of a log."""
    segments = list(log.segments)
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        batches = list(segment.batches_from(0))
        # Recovery may begin with any segment: what is before it, it does not compare.
        expected, epoch = segment.base_offset, -1
        for n, batch in enumerate(batches):
            header = batch.header
            after = batches[n + 1].header if n + 1 < len(batches) else None
            if log.gaps.is_marked:
                offsets = range(header.base_offset, header.next_offset)
            elif after is not None:
                offsets = range(expected, after.base_offset)
            else:
                offsets = range(expected, UNLIMITED if following is None else following.base_offset)
            epochs = range(epoch, UNLIMITED if after is None else after.partition_leader_epoch + 1)
            if log.log_start_offset <= header.base_offset < high_watermark:
                yield Place(segment.path(".log"), batch.position, header, offsets, epochs)
            expected, epoch = header.next_offset, header.partition_leader_epoch


def draw_bit(rng: random.Random, place: Place) -> tuple[int, int]:
    """The number of a byte in the batch, and of a bit in it."""
    byte, bit = rng.randrange(place.header.size_bytes), rng.randrange(8)
    return (byte, bit) if place.is_noticed(byte, bit) else (CRC_COVERS_FROM, bit)

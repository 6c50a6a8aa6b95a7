"""Batches of producers by their headers alone, and a partition that keeps nothing of them but its end."""

from dataclasses import dataclass, field

from ottla.protocol.records.batch import BatchHeader
from ottla.storage.producer_state import DuplicateOf, ProducerStateManager

LAST = 2147483647


def batch(
    sequence: int,
    count: int = 1,
    *,
    producer: int = 7,
    epoch: int = 0,
    attributes: int = 0,
    base_offset: int = 0,
    timestamp: int = 1000,
) -> BatchHeader:
    return BatchHeader(
        base_offset=base_offset,
        batch_length=100,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


@dataclass
class Partition:
    """A log that keeps nothing but its end, around the manager: what a leader does with each batch."""

    producers: ProducerStateManager = field(default_factory=ProducerStateManager)
    log_end_offset: int = 0
    now_ms: int = 0

    def append(self, header: BatchHeader) -> int | DuplicateOf:
        """The base offset, or what the batch repeats."""
        duplicate = self.producers.check(header)
        if duplicate is not None:
            return duplicate
        base_offset = self.log_end_offset
        self.producers.update(header, base_offset, self.now_ms)
        self.log_end_offset += header.last_offset_delta + 1
        return base_offset

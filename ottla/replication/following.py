"""Following: what a follower does to its own log, at its leader's word. `Follower` asks the leader, and decides."""

from ottla.protocol.records.batch import iterate_batches
from ottla.replication.partition_base import PartitionBase
from ottla.storage.validation import validate_replicated


class Following(PartitionBase):
    """The part of a partition that repeats its leader's log."""

    __slots__ = ()

    def append_from_leader(self, records: memoryview, *, wall_ms: int) -> None:
        """Raises CorruptMessage, the log being unchanged then, or KafkaStorageError."""
        log, start = self.log, self.log.log_start_offset
        if log.log_end_offset == start:
            self._maybe_start_within_batch(records)
        log.append_as_follower(records, now_wall_ms=wall_ms)
        log.write_pending(now_wall_ms=wall_ms)
        if log.log_start_offset < start:
            log.delete_records_before(start)
            self.high_watermark = start

    def _maybe_start_within_batch(self, records: memoryview) -> None:
        """DeleteRecords may leave a log start within a batch. An empty log takes the whole of that batch, and begins
        with it."""
        for _, header in iterate_batches(records):
            if header.base_offset < self.log.log_start_offset < header.next_offset:
                # All are checked before the log is changed.
                for _ in validate_replicated(records, header.base_offset):
                    pass
                self.restart_at(header.base_offset)
            return

    def follow(self, leader_high_watermark: int, leader_log_start_offset: int) -> bool:
        """Take over what the leader's answer said; returns whether the high watermark rose (§14.4.4).

        It does not fall with a new leader's, which may not know yet what its predecessor had committed."""
        log, before = self.log, self.high_watermark
        self.high_watermark = max(before, min(leader_high_watermark, log.log_end_offset), log.log_start_offset)
        start = min(leader_log_start_offset, self.high_watermark)
        if start > log.log_start_offset:
            log.delete_records_before(start)
        return self.high_watermark > before

    def truncate_to(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self.high_watermark = max(min(self.high_watermark, self.log.log_end_offset), self.log.log_start_offset)

    def restart_at(self, offset: int) -> None:
        """Drop all records; the leader's log begins above them."""
        self.log.truncate_fully_and_start_at(offset)
        # What is known of the records that went would be taken for knowledge about the leader's.
        self.log.epochs.clear()
        self.high_watermark = offset

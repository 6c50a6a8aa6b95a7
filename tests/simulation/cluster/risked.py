"""Replicas of a partition that any of them may lead (I-2, I-7, I-9): what was committed may be lost.

Logs agree all the same: a leader epoch has one leader, also an unclean one, so what is in two logs at one offset in one
leader epoch is the same, with all before it.
"""

from zlib import crc32

from ottla.protocol.records.batch import BatchHeader
from tests.simulation.cluster.replicas import TrackedLog

RISKED = "risked"


class RiskedLog(TrackedLog):
    def _begin(self) -> None:
        self._starts_at = self.log.log_start_offset
        self._prefixes = {self._starts_at: self._committed.last_prefixes.get(self._starts_at, 0)}

    def has_committed(self) -> bool:
        return True

    def commit(self, high_watermark: int, leader_epoch: int) -> bool:
        return False

    def _add(self, header: BatchHeader, content: memoryview) -> None:
        committed, key = self._committed, (header.base_offset, header.partition_leader_epoch)
        if not self._batches:
            # The batch at the log start may begin before it.
            self._starts_at = header.base_offset
            self._prefixes = {self._starts_at: committed.prefixes_before.get(key, 0)}
            is_known = header.base_offset == 0 or key in committed.prefixes_before
        else:
            is_known = header.base_offset in self._prefixes
        if is_known:
            committed.prefixes_before[key] = self._prefixes[header.base_offset]
            committed.last_prefixes[header.next_offset] = crc32(content, self._prefixes[header.base_offset])
        super()._add(header, content)

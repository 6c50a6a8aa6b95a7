"""Replicas of a partition whose log is compacted, compared record by record (I-2, I-3, I-5, I-7, I-9).

Compaction takes records away as it likes, so there is no hash of a whole log. What must survive follows from the keys:
of every key, the latest committed record; a tombstone may go when its time is over, and then nothing before it may be
left. A replica that was away until a tombstone was gone has what stood before it for ever, here as on Kafka (§16.6.3):
such keys do not count any more. Neither retention nor DeleteRecords takes anything here.

A record is named by its offset and its leader epoch: a record that another leader wrote at the same offset, under the
same key, is another one. After every swap the whole log is read again.
"""

from typing import Any
from zlib import crc32

from ottla.protocol.records.batch import BatchHeader
from ottla.protocol.records.record import iterate_records
from tests.simulation.cluster.replicas import Batch, LatestRecord, TrackedLog


class CompactedLog(TrackedLog):
    def __init__(self, *arguments: Any) -> None:
        self._end_offset = 0
        self._records: dict[bytes, list[LatestRecord]] = {}
        # All that this log has held, as far as it was not cut.
        self._tombstones: set[tuple[bytes, LatestRecord]] = set()
        super().__init__(*arguments)

    def _begin(self) -> None:
        self._end_offset = self.log.log_start_offset
        self._records.clear()
        self._batches.clear()

    @property
    def end_offset(self) -> int:
        return self._end_offset

    def prefix_at(self, offset: int) -> int | None:
        """A hash of the latest records of all keys below the log end offset. Tombstones do not count."""
        if offset != self._end_offset:
            return None
        latest = ((key, records[-1]) for key, records in self._records.items() if key not in self._committed.came_back)
        kept = sorted((key, record) for key, record in latest if not record.is_tombstone)
        return crc32(repr(kept).encode())

    def has_committed(self) -> bool:
        return self._end_offset >= self._committed.end_offset and not self._missing()

    def commit(self, high_watermark: int, leader_epoch: int) -> bool:
        committed = self._committed
        if high_watermark <= committed.end_offset:
            return False
        if not self.has_committed():
            self._cannot_commit(high_watermark, f"{self._missing()}, committed below {committed.end_offset}")
            return False
        self._note_committed(high_watermark)
        committed.end_offset, committed.leader_epoch = high_watermark, leader_epoch
        return True

    def _note_committed(self, high_watermark: int) -> None:
        for key, records in self._records.items():
            for record in records:
                if self._committed.end_offset <= record.offset < high_watermark:
                    self._committed.latest[key] = record

    def _missing(self) -> list[tuple[bytes, LatestRecord]]:
        """No record of a key goes before a later one of it is committed: what was committed last is there itself."""
        return [(key, wanted) for key, wanted in self._committed.latest.items() if not self._has(key, wanted)]

    def _has(self, key: bytes, wanted: LatestRecord) -> bool:
        records = self._records.get(key, [])
        if wanted in records:
            return True
        if not wanted.is_tombstone:
            return False
        if not any(record.offset <= wanted.offset for record in records):
            self._committed.expired.add((key, wanted))
            return True
        return self._was_away_until_it_expired(key, wanted)

    def _was_away_until_it_expired(self, key: bytes, tombstone: LatestRecord) -> bool:
        was_away = (key, tombstone) in self._committed.expired and (key, tombstone) not in self._tombstones
        if was_away:
            self._committed.came_back.add(key)
        return was_away

    def _note_tombstone(self, key: bytes, record: LatestRecord) -> None:
        if record.is_tombstone:
            self._tombstones.add((key, record))

    def _forget_what_was_cut(self) -> None:
        if self.log.log_end_offset < self._end_offset:
            self._tombstones = {each for each in self._tombstones if each[1].offset < self.log.log_end_offset}
        had_committed, held = self.has_committed(), self._held()
        self._begin()
        self._read_on()
        lost = self._missing() + [each for each in held if each[1].offset >= self._end_offset]
        if had_committed and lost and not self._is_rotten():
            self.violated("I-5", f"cut or compacted away {lost[:3]}, committed")

    def _held(self) -> list[tuple[bytes, LatestRecord]]:
        """Of what was committed last of each key, what is here. A tombstone that counts as expired may be one that this
        log never had: a follower has something else at its offset until it cuts that."""
        return [each for each in self._committed.latest.items() if each[1] in self._records.get(each[0], [])]

    def _read_on(self) -> None:
        while self._end_offset < self.log.log_end_offset:
            before = self._end_offset
            super()._read_on()
            if self._end_offset == before and self._is_rotten():
                return
            if self._end_offset == before:
                # Compaction has left nothing before the log end.
                self._end_offset = self.log.log_end_offset

    def _add(self, header: BatchHeader, content: memoryview) -> None:
        if header.base_offset < self._end_offset and header.next_offset <= self._end_offset:
            self.violated("I-9", f"offset {header.base_offset} where {self._end_offset} was next")
        epoch = header.partition_leader_epoch
        if not self._agrees_with_cache(header.base_offset, epoch):
            self.violated("I-7", f"batch {header.base_offset} has epoch {epoch}, the cache says {self._epochs}")
        if header.is_control:
            self._committed.control_batch_came(header, content)
        self._note_records(header, content)
        self._batches.append(Batch(header.base_offset, header.next_offset, epoch, 0, None))
        self._end_offset = header.next_offset

    def _note_records(self, header: BatchHeader, content: memoryview) -> None:
        epoch = header.partition_leader_epoch
        for record in iterate_records(content):
            key, value = bytes(record.key or b""), record.value
            self._check_known(record.offset, epoch, key, value)
            latest = LatestRecord(record.offset, epoch, value is None)
            self._records.setdefault(key, []).append(latest)
            self._note_tombstone(key, latest)

    def _check_known(self, offset: int, epoch: int, key: bytes, value: Any) -> None:
        content_hash = crc32(key + b"\0" + bytes(value or b""))
        if self._committed.known.setdefault((offset, epoch), content_hash) != content_hash:
            self.violated("I-2", f"another record of epoch {epoch} at {offset} than elsewhere")

"""Replicas of a compacted log with transactions: only what a committed transaction has written counts (I-3, I-5, §45).

A record of a transaction counts from its marker on, and at its own offset: of every key, the latest record that was
committed by then. An aborted record is no record. The marker of a transaction stays as long as its records, so reading
a compacted log decides them as before.

A replica that was away until a marker had expired does not get it, here as on Kafka (§45.5): what it has of the
transaction stays open, or is decided by the producer's next marker. Such records do not count any more, and nor does a
key of which one that was taken for committed has taken the place of an earlier record.
"""

from typing import Any

from ottla.protocol.records.batch import BatchHeader
from ottla.protocol.records.control import marker_of
from ottla.protocol.records.record import iterate_records
from tests.simulation.cluster.compacted import CompactedLog
from tests.simulation.cluster.replicas import LatestRecord, Marker


class DecidedLog(CompactedLog):
    def __init__(self, *arguments: Any) -> None:
        self._undecided: dict[int, list[tuple[bytes, LatestRecord]]] = {}
        # By key and record: the offset of what has decided it, itself where it is of no transaction.
        self._decided_at: dict[tuple[bytes, LatestRecord], int] = {}
        # Offsets of the batches of open transactions, by producer id.
        self._open: dict[int, list[range]] = {}
        # Records that do not count, by key, where the replica takes them for committed.
        self._taken_for_committed: dict[bytes, list[LatestRecord]] = {}
        self._markers: set[Marker] = set()
        super().__init__(*arguments)
        self._forget_markers_that_were_cut()

    def _begin(self) -> None:
        super()._begin()
        self._undecided.clear()
        self._decided_at.clear()
        self._open.clear()
        self._taken_for_committed.clear()
        self._markers.clear()

    def has_committed(self) -> bool:
        """Records that are undecided, and markers, have no key that sets them apart from another leader's."""
        committed = self._committed
        if committed.end_offset and self.end_offset >= committed.end_offset:
            epoch = self.log.epochs.epoch_at(committed.end_offset - 1)
            return epoch == committed.end_record_epoch and super().has_committed()
        return super().has_committed()

    def commit(self, high_watermark: int, leader_epoch: int) -> bool:
        is_news = super().commit(high_watermark, leader_epoch)
        if is_news:
            self._committed.end_record_epoch = self.log.epochs.epoch_at(high_watermark - 1)
        return is_news

    def _note_committed(self, high_watermark: int) -> None:
        latest = self._committed.latest
        for (key, record), decided_at in self._decided_at.items():
            if decided_at < high_watermark and (key not in latest or latest[key].offset < record.offset):
                latest[key] = record

    def _has(self, key: bytes, wanted: LatestRecord) -> bool:
        if super()._has(key, wanted):
            return True
        has_taken = any(each.offset > wanted.offset for each in self._taken_for_committed.get(key, ()))
        if has_taken:
            self._committed.came_back.add(key)
        return has_taken

    @property
    def _had_markers(self) -> set[Marker]:
        return self._committed.markers_of.setdefault(self._owner, set())

    def _forget_markers_that_were_cut(self) -> None:
        end_offset = self.log.log_end_offset
        self._committed.markers_of[self._owner] = {each for each in self._had_markers if each.offset < end_offset}

    def _forget_what_was_cut(self) -> None:
        if self.log.log_end_offset < self.end_offset:
            self._forget_markers_that_were_cut()
        super()._forget_what_was_cut()

    def _read_on(self) -> None:
        super()._read_on()
        if not self._is_rotten():
            gone = self._had_markers - self._markers
            self._committed.expired_markers |= {each for each in gone if each.offset < self.end_offset}
        for producer_id, batches in self._open.items():
            self._note_missed_markers(producer_id, batches, self.end_offset)

    def _note_missed_markers(self, producer_id: int, batches: list[range], end_offset: int) -> None:
        """Of batches that no marker below `end_offset` decides in this replica."""
        expired = [
            each.offset for each in self._committed.expired_markers - self._had_markers if each[2] == producer_id
        ]
        for batch in batches:
            if any(batch.stop <= offset < end_offset for offset in expired):
                self._committed.undecided.update(batch)

    def _note_records(self, header: BatchHeader, content: memoryview) -> None:
        if header.is_control:
            self._end_transaction(header, content)
            return
        found = []
        for record in iterate_records(content):
            key, value = bytes(record.key or b""), record.value
            self._check_known(record.offset, header.partition_leader_epoch, key, value)
            found.append((key, LatestRecord(record.offset, header.partition_leader_epoch, value is None)))
        if header.is_transactional:
            self._open.setdefault(header.producer_id, []).append(range(header.base_offset, header.next_offset))
            self._undecided.setdefault(header.producer_id, []).extend(found)
        else:
            self._decide(found, header.base_offset)

    def _end_transaction(self, header: BatchHeader, content: memoryview) -> None:
        marker = marker_of(content)
        if marker is not None:
            ending = Marker(header.base_offset, header.partition_leader_epoch, header.producer_id)
            self._markers.add(ending)
            self._had_markers.add(ending)
            self._note_missed_markers(header.producer_id, self._open.pop(header.producer_id, []), header.base_offset)
            records = self._undecided.pop(header.producer_id, [])
            if marker.is_commit:
                self._commit_records(records, header.base_offset)

    def _commit_records(self, records: list[tuple[bytes, LatestRecord]], offset: int) -> None:
        undecided = self._committed.undecided
        for key, record in records:
            if record.offset in undecided:
                self._taken_for_committed.setdefault(key, []).append(record)
        self._decide([each for each in records if each[1].offset not in undecided], offset)

    def _decide(self, found: list[tuple[bytes, LatestRecord]], offset: int) -> None:
        for key, record in found:
            self._decided_at[key, record] = max(offset, record.offset)
            records = self._records.setdefault(key, [])
            records.append(record)
            records.sort(key=lambda each: each.offset)
            self._note_tombstone(key, record)

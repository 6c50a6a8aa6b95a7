"""The idempotent producers of one log, and their snapshots: `<offset>.snapshot`, the state below that offset.

A snapshot of many producers is not written where the log rolls, for that takes as long as all of them; the owner of the
log has a copy of them written in a thread (`snapshots`).

After a truncation has taken some of their batches, the producers are read again. A snapshot stands at the base offset
of each segment, so this may read headers of a whole segment: seconds, if its batches are small.
"""

from functools import cached_property
from typing import NamedTuple

from ottla.storage.batch_scan import InvalidBatchError, scan
from ottla.storage.files import File, storage_error
from ottla.storage.local_log import LocalLog, Segments
from ottla.storage.producer_snapshot import CorruptSnapshot
from ottla.storage.producer_snapshots import ProducerSnapshots, SnapshotWrite
from ottla.storage.producer_state import ProducerStateManager
from ottla.storage.producer_table import ProducerTable
from ottla.storage.producer_tail import producers_before

SNAPSHOT_IN_PLACE_MAX = 2048
"""Up to so many producers, writing their snapshot takes a millisecond or two."""
_NO_PRODUCERS = ProducerTable()


def rebuild_producers(
    producers: ProducerStateManager,
    snapshots: ProducerSnapshots,
    segments: Segments,
    end_offset: int,
    now_wall_ms: int,
    index_from: int | None = None,
) -> None:
    """The producers as of `end_offset`, for `producers`, which knows none yet: from the newest good snapshot, then from
    the batches after it.

    With `index_from`, the base offset of a segment, the transaction indexes of it and of those after it are made on
    the way, in memory."""
    start = segments[0].base_offset
    for offset in snapshots.newest_first(at_most=end_offset if index_from is None else index_from):
        try:
            producers.load(snapshots.read(offset), now_wall_ms, offset)
        except CorruptSnapshot:
            snapshots.remove(offset)
        else:
            start = max(offset, start)
            break
    for n in range(segments.index_of(start), len(segments)):
        if start >= end_offset:
            return
        segment = segments[n]
        for batch in segment.batches_from(segment.anchor_for(start).position):
            if batch.header.base_offset >= start:
                aborted = producers.replay(batch.view, batch.header, now_wall_ms)
                if aborted is not None and index_from is not None and segment.base_offset >= index_from:
                    segment.note_aborted(aborted)


class LogProducers:
    """The producers as of the log end, and their snapshots."""

    def __init__(
        self, local: LocalLog, manager: ProducerStateManager, snapshots: ProducerSnapshots, loaded_at_ms: int
    ) -> None:
        self.snapshots = snapshots
        self.known: ProducerStateManager | None = None
        """As `manager`; None while they are to be read again. Asked with every append."""
        self._know(manager)
        self.seen_ms = loaded_at_ms
        """When a batch was last appended."""
        self._local = local
        # Before the truncation, until they are read again.
        self._known_before = _NO_PRODUCERS
        self.configure()

    def configure(self) -> None:
        if self.known is not None:
            self.known.expiration_ms = self._local.config.producer_id_expiration_ms

    @cached_property
    def manager(self) -> ProducerStateManager:
        """Raises KafkaStorageError.

        A truncation may forget the producers. Then they are read again: by `begin_restore` in a thread, or for the
        first caller who asks, which may take long."""
        local = self._local
        producers = self._new_manager()
        local.attempt(
            "restore the producers of",
            lambda: rebuild_producers(producers, self.snapshots, local.segments, local.log_end_offset, self.seen_ms),
        )
        producers.add_batches_before(self._known_before)
        self._known_before = _NO_PRODUCERS
        self.known = producers
        return producers

    def _know(self, manager: ProducerStateManager) -> None:
        self.manager = self.known = manager

    def add_batches_before_snapshot(self) -> bool:
        """Read what the snapshot has left out (`producer_tail`); False if there is nothing more to be known.

        Raises KafkaStorageError; then it may be asked again."""
        local, manager = self._local, self.manager
        offset = manager.snapshot_offset
        if offset is None:
            return False

        def read() -> None:
            manager.add_batches_before(producers_before(local.segments, offset, self.seen_ms))

        local.attempt("read the batches of producers of", read)
        manager.snapshot_offset = None
        return True

    def _new_manager(self) -> ProducerStateManager:
        return ProducerStateManager(self._local.config.producer_id_expiration_ms)

    @property
    def has_none(self) -> bool:
        """False also when they are not known."""
        return self.known is not None and not self.known

    def forget(self) -> None:
        self._local.may_have_transactions = True
        if self.known is not None:
            self._known_before = self.known.states
        self.known = None
        self.__dict__.pop("manager", None)

    def clear(self) -> None:
        """The log is empty."""
        self.snapshots.forget_late()
        self._known_before = _NO_PRODUCERS
        self._know(self._new_manager())

    def write_snapshot(self, offset: int) -> None:
        """Raises OSError."""
        self.snapshots.write(offset, self.manager.snapshot_bytes())

    def write_or_leave_snapshot(self, offset: int) -> None:
        """As `write_snapshot`; that of many producers is left to `snapshots.begin_write`."""
        if len(self.manager) <= SNAPSHOT_IN_PLACE_MAX:
            self.write_snapshot(offset)
        else:
            self.snapshots.write_later(offset, self.manager.states.copy())

    def begin_snapshot(self) -> SnapshotWrite | None:
        local = self._local
        if local.failure is not None:
            return None
        try:
            return self.snapshots.begin_write()
        except OSError as error:
            raise storage_error("write a producer snapshot of", local.directory, error) from error

    def finish_snapshot(self, write: SnapshotWrite) -> None:
        local = self._local
        if local.failure is not None:
            # The files may be another log's by now.
            return
        try:
            if self.snapshots.finish_write(write):
                local.directory_changed = True
        except OSError as error:
            raise storage_error("write a producer snapshot of", local.directory, error) from error

    def begin_restore(self) -> "ProducersRestore | None":
        """What reads the producers again; `run` it in a thread, then hand it to `finish_restore`. None: they are known.

        Raises KafkaStorageError."""
        local = self._local
        if self.known is not None or local.failure is not None:
            return None
        newest = self.snapshots.newest_first(at_most=local.log_end_offset)[:1]
        start_offset = max([local.segments[0].base_offset, *newest])
        try:
            return ProducersRestore(
                self._new_manager(),
                self.snapshots.read(newest[0]) if newest else None,
                [
                    _Piece(segment.file.duplicate(), segment.anchor_for(start_offset).position, segment.size)
                    for segment in list(local.segments)[local.segments.index_of(start_offset) :]
                ],
                start_offset=start_offset,
                end_offset=local.log_end_offset,
                now_wall_ms=self.seen_ms,
                known_before=self._known_before,
                truncations=local.truncations,
            )
        except OSError as error:
            raise storage_error("restore the producers of", local.directory, error) from error

    def finish_restore(self, restore: "ProducersRestore") -> None:
        """If it failed, or the log has changed since, the next caller who asks reads them."""
        local = self._local
        as_before = (
            restore.truncations == local.truncations and restore.end_offset == local.log_end_offset == local.next_offset
        )
        if restore.is_complete and as_before and self.known is None:
            self._know(restore.producers)
            self._known_before = _NO_PRODUCERS


class _Piece(NamedTuple):
    file: File
    position: int
    size: int


class ProducersRestore:
    """From the newest snapshot, then from the batches after it. `run` in any thread, once."""

    def __init__(
        self,
        producers: ProducerStateManager,
        snapshot: bytes | None,
        pieces: list[_Piece],
        *,
        start_offset: int,
        end_offset: int,
        now_wall_ms: int,
        known_before: ProducerTable,
        truncations: int,
    ) -> None:
        self.producers = producers
        self.end_offset = end_offset
        self.truncations = truncations
        self.is_complete = False
        self._snapshot = snapshot
        self._pieces = pieces
        self._start_offset = start_offset
        self._now_wall_ms = now_wall_ms
        self._known_before = known_before

    def run(self) -> None:
        """An error leaves `is_complete` False: the log then reads by itself, and raises it."""
        try:
            if self._snapshot is not None:
                self.producers.load(self._snapshot, self._now_wall_ms, self._start_offset)
            for piece in self._pieces:
                for batch in scan(piece.file, piece.position, piece.size, check_crc=False):
                    header = batch.header
                    if header.producer_id >= 0 and header.base_offset >= self._start_offset:
                        self.producers.replay(batch.view, header, self._now_wall_ms)
            self.producers.add_batches_before(self._known_before)
            self.is_complete = True
        except (OSError, CorruptSnapshot, InvalidBatchError):
            pass
        finally:
            for piece in self._pieces:
                piece.file.close()

"""Reading the producers of a log again, in a thread, after a truncation has taken some of their batches.

A snapshot stands at the base offset of each segment, so this may read headers of a whole segment: seconds, if its
batches are small.
"""

from typing import NamedTuple

from ottla.storage.files import File
from ottla.storage.producer_snapshots import ProducerSnapshots
from ottla.storage.producer_state import CorruptSnapshot, ProducerStateManager
from ottla.storage.scan import InvalidBatchError, scan
from ottla.storage.segments import Segments


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
        cuts: int,
    ) -> None:
        self.producers = producers
        self.end_offset = end_offset
        self.cuts = cuts
        self.is_complete = False
        self._snapshot = snapshot
        self._pieces = pieces
        self._start_offset = start_offset
        self._now_wall_ms = now_wall_ms

    def run(self) -> None:
        """Whatever goes wrong leaves `is_complete` False: the log then reads by itself, and tells of it."""
        try:
            if self._snapshot is not None:
                self.producers.load(self._snapshot, self._now_wall_ms)
            for piece in self._pieces:
                for batch in scan(piece.file, piece.position, piece.size, check_crc=False):
                    header = batch.header
                    if header.producer_id >= 0 and header.base_offset >= self._start_offset:
                        self.producers.replay(header, self._now_wall_ms)
            self.is_complete = True
        except (OSError, CorruptSnapshot, InvalidBatchError):
            pass
        finally:
            for piece in self._pieces:
                piece.file.close()


def begin_restore(
    producers: ProducerStateManager,
    snapshots: ProducerSnapshots,
    segments: Segments,
    *,
    end_offset: int,
    now_wall_ms: int,
    cuts: int,
) -> ProducersRestore:
    """Raises OSError."""
    newest = snapshots.newest_first(at_most=end_offset)[:1]
    start_offset = max([segments[0].base_offset, *newest])
    pieces = [
        _Piece(segment.file.duplicate(), segment.anchor_for(start_offset).position, segment.size)
        for segment in list(segments)[segments.index_of(start_offset) :]
    ]
    return ProducersRestore(
        producers,
        snapshots.read(newest[0]) if newest else None,
        pieces,
        start_offset=start_offset,
        end_offset=end_offset,
        now_wall_ms=now_wall_ms,
        cuts=cuts,
    )

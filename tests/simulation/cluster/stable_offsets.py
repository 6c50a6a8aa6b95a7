"""Where readers of committed records have to stop in a log, by nothing but its batches (I-29), and its epochs (I-8).

Looked at again only from the last stable offset on: what is below it is decided.
"""

from typing import NamedTuple

from ottla.protocol.records.batch import NO_PRODUCER_ID, BatchHeader
from ottla.protocol.records.control import marker_of


class Piece(NamedTuple):
    """A batch of a transaction, or a marker that ends one."""

    base_offset: int
    producer_id: int
    is_marker: bool


class StableOffset:
    """Of one replica. A log that is cut is read from its beginning again.

    Producers that are read back from a snapshot do not say which markers the high watermark has not passed (as in
    Kafka). That is safe: what a marker says was decided before it was written."""

    def __init__(self, log_end_offset: int, log_start_offset: int) -> None:
        # Markers below may count as soon as they are read back.
        self._read_back = log_end_offset
        # A transaction may have begun below, and its first records were deleted: only its producer's state says so.
        self._unknown_below = log_start_offset
        self._pieces: list[Piece] = []
        self._first_unstable = 0
        self._epochs: dict[int, int] = {}

    def add(self, header: BatchHeader, content: memoryview) -> str | None:
        """The next batch of the log; what is wrong with it."""
        if header.is_transactional:
            is_marker = header.is_control and marker_of(content) is not None
            self._pieces.append(Piece(header.base_offset, header.producer_id, is_marker))
        if header.producer_id == NO_PRODUCER_ID:
            return None
        before = self._epochs.get(header.producer_id, -1)
        self._epochs[header.producer_id] = header.producer_epoch
        if header.producer_epoch < before:
            return f"epoch {header.producer_epoch} of producer {header.producer_id} after {before}"
        return None

    def cut(self, end_offset: int) -> None:
        """Epochs of what was cut are not known any more."""
        while self._pieces and self._pieces[-1].base_offset >= end_offset:
            self._pieces.pop()
        self._first_unstable = 0
        self._read_back = end_offset
        self._epochs.clear()

    def may_be(self, high_watermark: int, log_start_offset: int) -> tuple[int, ...]:
        """From the least to the greatest: the first offset of the first transaction without a marker below the high
        watermark, which never falls; or without one below the snapshot that producers were read back from, which may
        end behind any marker. And the log start, where what was deleted is not known."""
        least = self._first_open(high_watermark, high_watermark)
        while self._first_unstable < len(self._pieces) and self._pieces[self._first_unstable].base_offset < least:
            self._first_unstable += 1
        may_be = [least]
        if least < high_watermark:
            read_back = (piece.base_offset for piece in self._pieces if piece.is_marker)
            snapshots = [offset + 1 for offset in read_back if high_watermark <= offset < self._read_back]
            may_be += [self._first_open(high_watermark, snapshot) for snapshot in snapshots]
        if self._unknown_below:
            may_be.append(log_start_offset)
        return tuple(max(offset, log_start_offset) for offset in may_be)

    def _first_open(self, high_watermark: int, markers_below: int) -> int:
        open_since: dict[int, int] = {}
        for piece in self._pieces[self._first_unstable :]:
            if piece.base_offset >= markers_below:
                break
            if piece.is_marker:
                open_since.pop(piece.producer_id, None)
            else:
                open_since.setdefault(piece.producer_id, piece.base_offset)
        return min(high_watermark, *open_since.values()) if open_since else high_watermark

"""The last appends to logs that followers copy, kept in memory for them: most fetches of followers find here what they
ask for, and the leader need not read and check again what it has just received and written.

Short batches are copied. A long one is not: it stays in the buffer that it was received in, which is not used again
until it is let go. That is when the high watermark has passed it, for then every follower in the ISR has it, or when
all together hold more than `HELD_BYTES_MAX`; who lags further behind is served from the log.

Records do not change once they are in a log; whatever takes some away changes the log's count of `truncations`.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from ottla.storage.log import Log

COPIED_BYTES_MAX = 16 << 10
HELD_BYTES_MAX = 20 << 20

NOWHERE = -1

_unpack_offsets = Struct(">q15xi").unpack_from
"""Base offset and last offset delta of a batch."""


class _KeptAppend(NamedTuple):
    """A batch, or several that are always given together."""

    end_offset: int
    records: memoryview
    held_bytes: int
    """How much memory is held for it. Of the batches in one buffer the last answers for the whole buffer."""


class _Tail:
    """Appends to one log that follow each other without a gap, by their base offsets."""

    __slots__ = ("end_offset", "kept", "truncations")

    def __init__(self, truncations: int, end_offset: int) -> None:
        self.truncations = truncations
        self.end_offset = end_offset
        self.kept: dict[int, _KeptAppend] = {}

    def add(self, records: memoryview, held_bytes: int, *, last: memoryview | None = None) -> None:
        """`last`: the last batch in `records`, if there are several."""
        base_offset, last_offset_delta = _unpack_offsets(records if last is None else last)
        end_offset = base_offset + last_offset_delta + 1
        self.kept[self.end_offset] = _KeptAppend(end_offset, records, held_bytes)
        self.end_offset = end_offset

    def charge(self, base_offset: int) -> int:
        """Lets a batch answer for all the memory that it is a view of; returns how much that is."""
        kept = self.kept[base_offset]
        held_bytes = memoryview(kept.records.obj).nbytes
        self.kept[base_offset] = kept._replace(held_bytes=held_bytes)
        return held_bytes


class RecentAppends:
    def __init__(self) -> None:
        # The log that was appended to last comes last.
        self._tails: dict[Log, _Tail] = {}
        self.held_bytes = 0

    def appended(self, log: Log, offset: int, batches: Sequence[bytes | bytearray | memoryview]) -> None:
        """`batches` were written to the log, from `offset` to its end. What a batch longer than `COPIED_BYTES_MAX` is a
        view of stays as it is while views of it are left."""
        tail = self._tails.pop(log, None)
        if tail is None or tail.end_offset != offset or tail.truncations != log.truncations:
            if tail is not None:
                self._let_go(tail)
            tail = _Tail(log.truncations, offset)
        self._tails[log] = tail
        self._keep(tail, batches)
        if self.held_bytes > HELD_BYTES_MAX:
            self._make_room()

    def _keep(self, tail: _Tail, batches: Sequence[bytes | bytearray | memoryview]) -> None:
        short: list[bytes | bytearray | memoryview] = []
        room = COPIED_BYTES_MAX
        held_at = NOWHERE
        for batch in batches:
            size = len(batch)
            if size > room:
                self._copy(tail, short)
                short, room = [], COPIED_BYTES_MAX
            if size > room:
                held_at = tail.end_offset
                tail.add(memoryview(batch), 0)
            else:
                short.append(batch)
                room -= size
        self._copy(tail, short)
        if held_at != NOWHERE:
            self.held_bytes += tail.charge(held_at)

    def _copy(self, tail: _Tail, batches: Sequence[bytes | bytearray | memoryview]) -> None:
        if batches:
            records = memoryview(b"".join(batches))
            tail.add(records, len(records), last=memoryview(batches[-1]))
            self.held_bytes += len(records)

    def read(self, log: Log, offset: int, max_bytes: int) -> list[memoryview]:
        """The batches from `offset` on that fit into `max_bytes`; empty if they must be read from the log."""
        found: list[memoryview] = []
        tail = self._tails.get(log)
        if tail is not None and tail.truncations == log.truncations:
            kept = tail.kept.get(offset)
            while kept is not None:
                max_bytes -= len(kept.records)
                if max_bytes < 0:
                    break
                found.append(kept.records)
                kept = tail.kept.get(kept.end_offset)
        return found

    def passed(self, log: Log, high_watermark: int) -> None:
        """The followers in the ISR have what lies below the high watermark."""
        tail = self._tails.get(log)
        if tail is None:
            return
        kept = tail.kept
        while kept:
            base_offset = next(iter(kept))
            if kept[base_offset].end_offset > high_watermark:
                return
            self.held_bytes -= kept.pop(base_offset).held_bytes
        del self._tails[log]

    def forget(self, log: Log) -> None:
        """Its records are read from the log, or it is deleted."""
        tail = self._tails.pop(log, None)
        if tail is not None:
            self._let_go(tail)

    def _let_go(self, tail: _Tail) -> None:
        self.held_bytes -= sum(kept.held_bytes for kept in tail.kept.values())

    def _make_room(self) -> None:
        """Lets go of what is oldest in the log that has not been appended to for longest."""
        while self.held_bytes > HELD_BYTES_MAX:
            log, tail = next(iter(self._tails.items()))
            if tail.kept:
                self.held_bytes -= tail.kept.pop(next(iter(tail.kept))).held_bytes
            else:
                del self._tails[log]

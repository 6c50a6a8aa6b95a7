"""Records on their way into the log, and what waits for them.

The log reports appends in its own order, in which the high watermark passes them. Only the markers of transactions rest
on it: of two other records with one key the one that stands later in the log wins, whichever is reported first
(docs/semantics §9.2.7).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from ottla.coordinator.runtime.effects import CoordinatorRecord
from ottla.protocol.errors import ErrorCode

IN_DOUBT: Final = {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
"""The leader's log has the records and may still get them committed."""

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class InFlight(Generic[A]):
    """An append whose end is not known yet."""

    owner: str
    records: tuple[CoordinatorRecord, ...]
    after: A | None
    """None: the failure was reported to it, and it waits no longer."""
    producer_id: int | None = None
    """Of a transactional batch."""


class AppendBook(Generic[A]):
    """All appends whose end is not known yet."""

    __slots__ = ("_in_doubt", "_last_id", "_open", "_pending_keys", "_pending_owners", "_replayed")

    def __init__(self) -> None:
        self._last_id = 0
        self._open: dict[int, InFlight[A]] = {}
        self._in_doubt: dict[int, InFlight[A]] = {}
        self._pending_keys: dict[bytes, int] = {}
        self._pending_owners: dict[str, int] = {}
        # Offset of the last replayed record of a key, kept while an earlier one of that key may still be reported.
        self._replayed: dict[bytes, int] = {}

    def open(self, owner: str, records: tuple[CoordinatorRecord, ...], after: A, producer_id: int | None = None) -> int:
        self._last_id += 1
        self._open[self._last_id] = InFlight(owner, records, after, producer_id)
        _count_up(self._pending_owners, owner)
        for record in records:
            _count_up(self._pending_keys, record.key)
        return self._last_id

    def complete(self, append_id: int) -> InFlight[A] | None:
        """Take the append out. None when it is not known: the partition has been unloaded since."""
        if append_id in self._open:
            return self._close(append_id)
        return self._in_doubt.pop(append_id, None)

    def fail(self, append_id: int, error: ErrorCode) -> A | None:
        """Take it out, or only what waits for it when the records may still become committed."""
        if append_id not in self._open:
            if error not in IN_DOUBT:
                self._in_doubt.pop(append_id, None)
            return None
        in_flight = self._close(append_id)
        if error in IN_DOUBT:
            self._in_doubt[append_id] = replace(in_flight, after=None)
        return in_flight.after

    def newest(self, in_flight: InFlight[A], base_offset: int) -> Iterator[tuple[CoordinatorRecord, int]]:
        """The records, with their offsets, that no later record of the same key has overtaken. To be replayed.

        Those of a transaction overtake none, for it may be aborted."""
        is_final = in_flight.producer_id is None
        for record_offset, record in enumerate(in_flight.records, base_offset):
            if record_offset > self._replayed.get(record.key, -1):
                yield record, record_offset
                if is_final and (self._open or self._in_doubt):
                    self._replayed[record.key] = record_offset
        if not self._open and not self._in_doubt:
            self._replayed.clear()

    def close(self) -> list[A]:
        """Forget everything. Gives what waited, in the order of the appends."""
        waiting = [in_flight.after for in_flight in self._open.values() if in_flight.after is not None]
        self._open.clear()
        self._in_doubt.clear()
        self._pending_keys.clear()
        self._pending_owners.clear()
        self._replayed.clear()
        return waiting

    def is_pending(self, key: bytes) -> bool:
        return key in self._pending_keys

    def is_owner_pending(self, owner: str) -> bool:
        return owner in self._pending_owners

    def pending_owners(self) -> Iterator[str]:
        yield from self._pending_owners

    def pending_keys(self, owner: str) -> Iterator[bytes]:
        """Keys of the owner's records on their way, including those whose append timed out."""
        if owner not in self._pending_owners and not self._in_doubt:
            return
        for in_flight in (*self._open.values(), *self._in_doubt.values()):
            if in_flight.owner == owner:
                yield from (record.key for record in in_flight.records)

    def _close(self, append_id: int) -> InFlight[A]:
        in_flight = self._open.pop(append_id)
        _count_down(self._pending_owners, in_flight.owner)
        for record in in_flight.records:
            _count_down(self._pending_keys, record.key)
        return in_flight


def _count_up(counts: dict[A, int], key: A) -> None:
    counts[key] = counts.get(key, 0) + 1


def _count_down(counts: dict[A, int], key: A) -> None:
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]

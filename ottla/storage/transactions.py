"""The transactions of one partition that are not over yet, and where readers of committed records have to stop.

A transaction is *open* from its producer's first batch on until the marker that ends it is appended; then it has
*ended*, and is not over before the high watermark has passed its marker. The first unstable offset is the smallest
first offset of both kinds. Below it everything is decided, and known to all in-sync replicas to be.

The transactions that were aborted stand in the index of the segment that has their marker (`transaction_index`).
"""

from collections import OrderedDict
from collections.abc import Mapping
from operator import itemgetter
from typing import NamedTuple

LATE_AFTER_TIMEOUT_MS = 300_000
"""Kafka's `LATE_TRANSACTION_BUFFER_MS`."""


class AbortedTxn(NamedTuple):
    """An entry of a transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of its marker."""
    last_stable_offset: int
    """All transactions that begin below it are decided, and are in an index up to here if they were aborted."""


class EndedTransaction(NamedTuple):
    first_offset: int
    marker_offset: int


class OldestTransaction(NamedTuple):
    producer_id: int
    epoch: int
    first_offset: int
    seen_ms: int
    """When its producer wrote last, by the broker's clock."""

    def is_late(self, wall_ms: int, transaction_max_timeout_ms: int) -> bool:
        """Whether a coordinator that knew of it would have ended it by now (§41.5)."""
        return wall_ms - self.seen_ms > transaction_max_timeout_ms + LATE_AFTER_TIMEOUT_MS


class Transactions:
    """Of one partition. The part that appends calls `begin` and `end` in the order of offsets, then `confirm` when that
    is written, or `undo` when it could not be. All but `undo` cost the same however many are open."""

    __slots__ = ("_ended", "_open", "_unconfirmed_ends", "ends_known_from", "unconfirmed")

    def __init__(self) -> None:
        # First offsets by producer id, rising: a transaction begins at the log end. A plain dict would be searched for
        # its first entry past all that were deleted before it.
        self._open: OrderedDict[int, int] = OrderedDict()
        # In the order of their markers.
        self._ended: list[EndedTransaction] = []
        self.unconfirmed: dict[int, int | None] = {}
        """For each producer whose transaction has begun or ended since the last `confirm`, the first offset of the one
        that was open then, or None."""
        self.ends_known_from = 0
        """A snapshot does not say which transactions have ended: of markers below this offset none is known."""
        # How many of the last in `_ended` those are.
        self._unconfirmed_ends = 0

    def __bool__(self) -> bool:
        return bool(self._open or self._ended)

    @property
    def open(self) -> Mapping[int, int]:
        """First offset by producer id."""
        return self._open

    def begin(self, producer_id: int, first_offset: int) -> None:
        self.unconfirmed.setdefault(producer_id, self._open.get(producer_id))
        self._open[producer_id] = first_offset

    def end(self, producer_id: int, marker_offset: int) -> AbortedTxn | None:
        """What its entry in the index says if it was aborted. None: the producer has no transaction here."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None
        self.unconfirmed.setdefault(producer_id, first_offset)
        self._unconfirmed_ends += 1
        self._ended.append(EndedTransaction(first_offset, marker_offset))
        last_stable_offset = next(iter(self._open.values()), marker_offset + 1)
        return AbortedTxn(producer_id, first_offset, marker_offset, last_stable_offset)

    def confirm(self) -> None:
        self.unconfirmed.clear()
        self._unconfirmed_ends = 0

    def undo(self) -> None:
        """As it was at the last `confirm`. The ended ones that are forgotten lie beyond any high watermark."""
        for producer_id, first_offset in self.unconfirmed.items():
            self._open.pop(producer_id, None)
            if first_offset is not None:
                self._open[producer_id] = first_offset
        if self._unconfirmed_ends:
            self._open = OrderedDict(sorted(self._open.items(), key=itemgetter(1)))
            del self._ended[-self._unconfirmed_ends :]
        self.confirm()

    def last_stable_offset(self, high_watermark: int, log_start_offset: int) -> int:
        """The first offset that a reader of committed records does not see yet: at most the high watermark.

        It rises with the high watermark, and lets go of transactions that are over. Where the beginning of an
        unstable transaction was deleted, it is the log start offset."""
        ended = self._ended
        passed = 0
        while passed < len(ended) and ended[passed].marker_offset < high_watermark:
            passed += 1
        del ended[:passed]
        unstable = min(
            next(iter(self._open.values()), high_watermark),
            min((each.first_offset for each in ended), default=high_watermark),
        )
        return min(max(unstable, log_start_offset), high_watermark)

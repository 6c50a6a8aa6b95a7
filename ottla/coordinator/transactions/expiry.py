"""What time does: transactions that are open for too long are aborted, ids that no client uses are removed (§13.5.6).

Both compare times that an earlier coordinator may have stored, so that the clocks of the brokers matter. A transaction
that begins in the future is open since it was loaded, or since a clock that was set back was looked at.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from ottla.coordinator.runtime.effects import CoordinatorRecord
from ottla.coordinator.transactions.context import TransactionContext, give_up
from ottla.coordinator.transactions.decisions import DECISIONS_PER_SLICE, IDS_PER_SLICE, fence
from ottla.coordinator.transactions.entry import (
    NEVER_TIMES_OUT_MS,
    TransactionalIdEntry,
    TransactionState,
)
from ottla.coordinator.transactions.events import (
    AbortTimedOutTransactions,
    ExpireTransactionalIds,
)
from ottla.coordinator.transactions.facts import AbortReason, TransactionalIdExpired, TransactionTimedOut
from ottla.coordinator.transactions.records import build_transaction_key
from ottla.protocol.errors import ErrorCode

TOMBSTONES_PER_BATCH: Final = 64
_NO_OWNER: Final = ""


def abort_timed_out(context: TransactionContext, _event: AbortTimedOutTransactions) -> None:
    context.run(_abort_in_slices(context))


def _abort_in_slices(context: TransactionContext) -> Iterator[None]:
    for entries in _slices(context):
        overdue = iter([(entry, open_ms) for entry in entries if (open_ms := _overdue_ms(context, entry)) is not None])
        while some := list(islice(overdue, DECISIONS_PER_SLICE)):
            for entry, open_ms in some:
                _abort(context, entry, open_ms)
            yield
            if context.is_unloading:
                return
        yield


def _overdue_ms(context: TransactionContext, entry: TransactionalIdEntry) -> int | None:
    """How long the transaction has been open, if that is longer than it may."""
    open_ms = _open_ms(context, entry)
    return open_ms if open_ms is not None and open_ms > entry.metadata.timeout_ms else None


def _abort(context: TransactionContext, entry: TransactionalIdEntry, open_ms: int) -> None:
    metadata = entry.metadata
    context.observe(
        TransactionTimedOut(
            transactional_id=entry.transactional_id,
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            start_ms=metadata.start_ms,
            transaction_timeout_ms=metadata.timeout_ms,
            open_ms=open_ms,
        )
    )
    fence(context, entry, AbortReason.TIMED_OUT)


def _open_ms(context: TransactionContext, entry: TransactionalIdEntry) -> int | None:
    """How long the transaction has been open; None where there is none to abort."""
    metadata = entry.metadata
    if metadata.state is not TransactionState.ONGOING or entry.pending is not None:
        return None
    if metadata.timeout_ms == NEVER_TIMES_OUT_MS:
        return None
    open_ms = context.wall_ms - metadata.start_ms
    ahead = context.begun_ahead(entry)
    # It has been open for that long at least.
    return open_ms if ahead is None else max(open_ms, context.now_ms - ahead.seen_ms)


def expire_ids(context: TransactionContext, _event: ExpireTransactionalIds) -> None:
    context.run(_expire_in_slices(context))


def _expire_in_slices(context: TransactionContext) -> Iterator[None]:
    unused_since_ms = context.wall_ms - context.config.transactional_id_expiration_ms
    for entries in _slices(context):
        expired = iter([entry for entry in entries if _is_expired(entry, unused_since_ms)])
        while batch := tuple(islice(expired, TOMBSTONES_PER_BATCH)):
            _append_tombstones(context, batch)
            yield
            if context.is_unloading:
                return
        yield


def _is_expired(entry: TransactionalIdEntry, unused_since_ms: int) -> bool:
    metadata = entry.metadata
    return entry.pending is None and metadata.is_idle and metadata.last_update_ms <= unused_since_ms


def _append_tombstones(context: TransactionContext, entries: tuple[TransactionalIdEntry, ...]) -> None:
    after = _TombstonesAppend(tuple((entry, entry.prepare(None, entry.last_epoch).number) for entry in entries))
    records = [CoordinatorRecord(build_transaction_key(entry.transactional_id), None) for entry in entries]
    context.append(_NO_OWNER, records, after)


class _TombstonesAppend:
    """Replaying the tombstones removes the entries."""

    __slots__ = ("_expired",)

    def __init__(self, expired: tuple[tuple[TransactionalIdEntry, int], ...]) -> None:
        self._expired = expired

    def completed(self, context: TransactionContext) -> None:
        for entry, _ in self._expired:
            context.observe(
                TransactionalIdExpired(
                    transactional_id=entry.transactional_id,
                    producer_id=entry.metadata.producer_id,
                    producer_epoch=entry.metadata.producer_epoch,
                )
            )

    def failed(self, context: TransactionContext, error: ErrorCode) -> None:
        for entry, number in self._expired:
            give_up(context, entry, number, error)


def _slices(context: TransactionContext) -> Iterator[list[TransactionalIdEntry]]:
    entries = iter(list(context.entries.values()))
    while some := list(islice(entries, IDS_PER_SLICE)):
        yield some

"""Deciding a transaction, and what follows: its markers, and its completion (§13.5).

The record of PREPARE_COMMIT or PREPARE_ABORT is the decision. Once it is committed nothing changes the outcome: markers
are written until every partition has its own, and then the record of the completion until it is committed. All that
time the entry is pending, so that no request comes in between; a coordinator that loads the log in the middle does all
of it again.
"""

from collections.abc import Callable, Iterator
from heapq import nsmallest
from itertools import islice
from typing import Any, Final

from ottla.coordinator.runtime.appends import IN_DOUBT
from ottla.coordinator.transactions.context import TransactionContext
from ottla.coordinator.transactions.entry import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NONE_MISSING,
    TransactionalIdEntry,
    TransactionMetadata,
    TransactionState,
)
from ottla.coordinator.transactions.events import MarkersWritten, RetryCompletionTimer, WriteMarkers
from ottla.coordinator.transactions.facts import (
    NAMES_MAX,
    AbortReason,
    Outcome,
    TransactionDecided,
    TransactionIsComplete,
)
from ottla.coordinator.transactions.participants import NO_PARTICIPANTS, Participant
from ottla.protocol.errors import ErrorCode

COMPLETION_RETRY_MS: Final = 100
IDS_PER_SLICE: Final = 1000
"""To look at one takes less than a microsecond."""
DECISIONS_PER_SLICE: Final = 32
"""What follows a decision takes some 100 µs, with the records that it appends."""
PREPARED_PER_SLICE: Final = 256
"""To prepare a completion takes some 5 µs."""
PARTITIONS_PER_SLICE: Final = 8192


def decide_and_raise_epoch(
    context: TransactionContext,
    entry: TransactionalIdEntry,
    reason: AbortReason | None,
    *,
    next_producer_id: int = NO_PRODUCER_ID,
    token: int | None = None,
    result: Any = None,
    refusal: Callable[[ErrorCode], Any] = lambda error: error,
) -> None:
    """By the rules of KIP-890: a commit, or an abort for that reason. Without a transaction, an abort of nothing."""
    metadata = entry.metadata
    is_open = metadata.state is TransactionState.ONGOING
    target = metadata._replace(
        state=TransactionState.PREPARE_COMMIT if reason is None else TransactionState.PREPARE_ABORT,
        producer_epoch=min(metadata.producer_epoch + 1, EPOCH_MAX),
        last_update_ms=context.wall_ms,
        start_ms=metadata.start_ms if is_open else context.wall_ms,
        previous_producer_id=metadata.producer_id,
        next_producer_id=next_producer_id,
        client_version=2,
    )
    fact = decided(context, entry, target, reason)
    context.write_transition(
        entry, target, metadata.producer_epoch, token=token, result=result, refusal=refusal, fact=fact
    )


def fence(
    context: TransactionContext,
    entry: TransactionalIdEntry,
    reason: AbortReason,
    *,
    token: int | None = None,
    result: Any = None,
    refusal: Callable[[ErrorCode], Any] = lambda error: error,
) -> None:
    """Abort the open transaction against its producer, whose epoch no longer counts once that is durable."""
    if context.transaction_version() >= 2:
        decide_and_raise_epoch(context, entry, reason, token=token, result=result, refusal=refusal)
        return
    metadata = entry.metadata
    target = metadata._replace(
        state=TransactionState.PREPARE_ABORT,
        producer_epoch=min(metadata.producer_epoch + 1, EPOCH_MAX),
        last_update_ms=context.wall_ms,
        previous_producer_id=metadata.producer_id,
        client_version=0,
    )
    fact = decided(context, entry, target, reason)
    context.write_transition(entry, target, NO_EPOCH, token=token, result=result, refusal=refusal, fact=fact)


def decided(
    context: TransactionContext, entry: TransactionalIdEntry, target: TransactionMetadata, reason: AbortReason | None
) -> TransactionDecided | None:
    """What is reported of the decision, which is a commit without a reason; None if none are asked for."""
    if not context.is_observed():
        return None
    return TransactionDecided(
        transactional_id=entry.transactional_id,
        producer_id=entry.metadata.producer_id,
        producer_epoch=entry.metadata.producer_epoch,
        start_ms=target.start_ms,
        outcome=_outcome(target.state),
        reason=reason,
        open_ms=target.last_update_ms - target.start_ms,
        partitions=len(target.partitions),
        topics=tuple(nsmallest(NAMES_MAX, target.partitions.topics())),
        group_ids=tuple(sorted(entry.group_ids)),
    )


def _outcome(state: TransactionState) -> Outcome:
    is_commit = state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
    return Outcome.COMMIT if is_commit else Outcome.ABORT


# After the decision.


def resume_decided(context: TransactionContext) -> Iterator[None]:
    """What an earlier coordinator decided and did not complete. All of it is pending when the partition is served.

    Markers are sent from then on, for what comes back of them is handled only then; before any request is."""
    decided: list[TransactionalIdEntry] = []
    for number, entry in enumerate(context.entries.values(), 1):
        metadata = entry.metadata
        if metadata.is_decided:
            decided.append(entry)
        elif metadata.state is TransactionState.ONGOING:
            context.begun_ahead(entry)  # From now on it counts, if it begins in the future.
        if not number % IDS_PER_SLICE:
            yield
    for number, entry in enumerate(decided, 1):
        _prepare_completion(context, entry)
        if not number % PREPARED_PER_SLICE:
            yield
    context.run(_begin_all_markers(context, decided))


def _begin_all_markers(context: TransactionContext, decided: list[TransactionalIdEntry]) -> Iterator[None]:
    for number, entry in enumerate(decided, 1):
        yield from _begin_markers(context, entry)
        if not number % DECISIONS_PER_SLICE:
            yield
            if context.is_unloading:
                return


def begin_markers(context: TransactionContext, entry: TransactionalIdEntry) -> None:
    """The decision is durable: its record is committed."""
    _prepare_completion(context, entry)
    context.run(_begin_markers(context, entry))


def _begin_markers(context: TransactionContext, entry: TransactionalIdEntry) -> Iterator[None]:
    pending, metadata = entry.pending, entry.metadata
    assert pending is not None, "the completion is prepared"
    if not metadata.partitions:
        _append_completion(context, entry)
        return
    partitions: list[Participant] = []
    missing: set[Participant] = set()
    every = iter(metadata.partitions)
    while some := list(islice(every, PARTITIONS_PER_SLICE)):
        if partitions:
            yield
            if context.is_unloading:
                return
        partitions += some
        missing.update(some)
    entry.missing_markers = missing
    context.dispatch(
        WriteMarkers(
            transactional_id=entry.transactional_id,
            number=pending.number,
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            commit=metadata.state is TransactionState.PREPARE_COMMIT,
            # An epoch that cannot rise is that of the data too, and by level 2 the leader would refuse such a marker.
            client_version=metadata.client_version if metadata.producer_epoch < EPOCH_MAX else 0,
            partitions=tuple(partitions),
        )
    )


def _prepare_completion(context: TransactionContext, entry: TransactionalIdEntry) -> None:
    target = _completed(entry.metadata, context.wall_ms)
    context.prepare(entry, target, entry.last_epoch, _complete(context, entry, target))


def _complete(
    context: TransactionContext, entry: TransactionalIdEntry, target: TransactionMetadata
) -> TransactionIsComplete | None:
    if not context.is_observed():
        return None
    return TransactionIsComplete(
        transactional_id=entry.transactional_id,
        producer_id=target.producer_id,
        producer_epoch=target.producer_epoch,
        start_ms=target.start_ms,
        outcome=_outcome(target.state),
    )


def _completed(metadata: TransactionMetadata, wall_ms: int) -> TransactionMetadata:
    is_commit = metadata.state is TransactionState.PREPARE_COMMIT
    has_next_id = metadata.client_version >= 2 and metadata.next_producer_id != NO_PRODUCER_ID
    return metadata._replace(
        state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        producer_id=metadata.next_producer_id if has_next_id else metadata.producer_id,
        producer_epoch=0 if has_next_id else metadata.producer_epoch,
        partitions=NO_PARTICIPANTS,
        last_update_ms=wall_ms,
        previous_producer_id=metadata.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def markers_written(context: TransactionContext, event: MarkersWritten) -> None:
    """Here what comes late is dropped: after another transition, or of an id that is no longer here."""
    entry = context.entries.get(event.transactional_id)
    if entry is None or not entry.is_pending(event.number) or not entry.missing_markers:
        return
    entry.missing_markers -= event.partitions
    if not entry.missing_markers:
        entry.missing_markers = NONE_MISSING
        _append_completion(context, entry)


def retry_completion(context: TransactionContext, timer: RetryCompletionTimer) -> None:
    entry = context.entries.get(timer.transactional_id)
    if entry is not None and entry.is_pending(timer.number):
        _append_completion(context, entry)


def _append_completion(context: TransactionContext, entry: TransactionalIdEntry) -> None:
    context.append_pending(entry, _CompletionAppend(entry))


class _CompletionAppend:
    """The record of a completion is on its way. It is appended again until it is in the log."""

    __slots__ = ("_entry", "_number")

    def __init__(self, entry: TransactionalIdEntry) -> None:
        assert entry.pending is not None, "a completion is prepared before its markers are sent"
        self._entry = entry
        self._number = entry.pending.number

    def completed(self, context: TransactionContext) -> None:
        """Nothing waits for it."""

    def failed(self, context: TransactionContext, error: ErrorCode) -> None:
        if error in IN_DOUBT or error is ErrorCode.NOT_COORDINATOR:
            # It may become committed yet, or another coordinator loads the decision.
            return
        if self._entry.is_pending(self._number):
            key = RetryCompletionTimer(self._entry.transactional_id, self._number)
            context.set_timer(key, context.now_ms + COMPLETION_RETRY_MS)

"""InitProducerId: a transactional id gets its producer id and epoch, and its predecessor is fenced (§13.3)."""

from typing import NamedTuple

from ottla.coordinator.transactions.context import TransactionContext, starting_entry
from ottla.coordinator.transactions.decisions import fence
from ottla.coordinator.transactions.entry import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    TransactionalIdEntry,
    TransactionMetadata,
    TransactionState,
)
from ottla.coordinator.transactions.events import InitializeProducer, ProducerResult
from ottla.coordinator.transactions.facts import AbortReason, ProducerInitialized
from ottla.coordinator.transactions.participants import NO_PARTICIPANTS
from ottla.protocol.errors import ErrorCode


class _NextPair(NamedTuple):
    producer_id: int
    producer_epoch: int
    last_epoch: int


def initialize_producer(context: TransactionContext, request: InitializeProducer) -> None:
    entry = context.find(request)
    if entry is None:
        producer_id = context.take_producer_id()
        if producer_id is None:
            context.reply(request.token, ProducerResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        entry = starting_entry(request.transactional_id, producer_id, request.timeout_ms)
        context.entries[request.transactional_id] = entry
    error = _error(entry, request)
    if error is not None:
        _refuse(context, entry, request, error)
    elif entry.metadata.state is TransactionState.ONGOING:
        # Never a pair: the client asks again until the abort is complete, and then gets a greater one.
        result = ProducerResult(ErrorCode.CONCURRENT_TRANSACTIONS)
        fence(context, entry, _reason(entry, request), token=request.token, result=result, refusal=ProducerResult)
    else:
        _initialize(context, entry, request)


def _reason(entry: TransactionalIdEntry, request: InitializeProducer) -> AbortReason:
    pair = (entry.metadata.producer_id, entry.metadata.producer_epoch)
    is_own = (request.producer_id, request.producer_epoch) == pair
    return AbortReason.PRODUCER_RESTARTED if is_own else AbortReason.FENCED


def _refuse(
    context: TransactionContext, entry: TransactionalIdEntry, request: InitializeProducer, error: ErrorCode
) -> None:
    context.report_if_fenced(entry, request, error)
    context.reply(request.token, ProducerResult(error))


def _error(entry: TransactionalIdEntry, request: InitializeProducer) -> ErrorCode | None:
    metadata = entry.metadata
    if entry.busy_error is not None:
        return entry.busy_error
    if request.producer_id != NO_PRODUCER_ID and entry.exists_in_log and not _knows_id(metadata, request):
        return ErrorCode.PRODUCER_FENCED
    assert not metadata.is_decided, "a decided transaction is pending until it is complete"
    return None


def _knows_id(metadata: TransactionMetadata, request: InitializeProducer) -> bool:
    """The producer id is the current one, or the one before if its epochs were used up."""
    if request.producer_id == metadata.producer_id:
        return True
    return request.producer_id == metadata.previous_producer_id and request.producer_epoch >= EPOCH_MAX - 1


def _initialize(context: TransactionContext, entry: TransactionalIdEntry, request: InitializeProducer) -> None:
    pair = _next_pair(context, entry, request)
    if isinstance(pair, ErrorCode):
        _refuse(context, entry, request, pair)
        return
    target = entry.metadata._replace(
        producer_id=pair.producer_id,
        producer_epoch=pair.producer_epoch,
        timeout_ms=request.timeout_ms,
        state=TransactionState.EMPTY,
        partitions=NO_PARTICIPANTS,
        last_update_ms=context.wall_ms,
        start_ms=NO_TIME,
        previous_producer_id=entry.metadata.producer_id if entry.exists_in_log else NO_PRODUCER_ID,
    )
    result = ProducerResult(ErrorCode.NONE, pair.producer_id, pair.producer_epoch)
    fact = ProducerInitialized(
        transactional_id=entry.transactional_id,
        producer_id=pair.producer_id,
        producer_epoch=pair.producer_epoch,
        transaction_timeout_ms=request.timeout_ms,
    )
    context.write_transition(
        entry, target, pair.last_epoch, token=request.token, result=result, refusal=ProducerResult, fact=fact
    )


def _next_pair(
    context: TransactionContext, entry: TransactionalIdEntry, request: InitializeProducer
) -> _NextPair | ErrorCode:
    """The rows of §13.3.2 for a producer without an open transaction."""
    metadata, epoch = entry.metadata, entry.metadata.producer_epoch
    has_pair = request.producer_id != NO_PRODUCER_ID
    is_current = not entry.exists_in_log or request.producer_epoch == epoch
    last_epoch = epoch if has_pair else NO_EPOCH
    if not has_pair or is_current:
        if not metadata.is_epoch_exhausted:
            return _NextPair(metadata.producer_id, epoch + 1, last_epoch)
        return _of_next_id(context, last_epoch)
    if request.producer_epoch == entry.last_epoch:
        # The answer was lost. A producer that was initialized without a pair has left no last epoch, so that its
        # predecessor cannot obtain the new epoch here. The one that fenced the last epoch is for no client.
        if epoch == EPOCH_MAX:
            return _of_next_id(context, entry.last_epoch)
        return _NextPair(metadata.producer_id, epoch, entry.last_epoch)
    return ErrorCode.PRODUCER_FENCED


def _of_next_id(context: TransactionContext, last_epoch: int) -> _NextPair | ErrorCode:
    producer_id = context.take_producer_id()
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if producer_id is None else _NextPair(producer_id, 0, last_epoch)

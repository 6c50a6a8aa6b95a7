"""EndTxn: the producer commits or aborts its transaction (§13.5).

Up to version 4 the epoch stays, and a late EndTxn of one transaction can end the next. From version 5 on the epoch
rises with every transaction, and the answer holds the id and epoch of the next one (KIP-890): a request with the epoch
before is a repetition, whose answer was lost.
"""

from typing import Final

from ottla.coordinator.transactions.context import TransactionContext
from ottla.coordinator.transactions.decisions import decide_and_raise_epoch, decided
from ottla.coordinator.transactions.entry import (
    EPOCH_MAX,
    NO_PRODUCER_ID,
    TransactionalIdEntry,
    TransactionState,
)
from ottla.coordinator.transactions.events import EndTransaction, ProducerResult
from ottla.coordinator.transactions.facts import AbortReason
from ottla.protocol.errors import ErrorCode

_COMPLETE: Final = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


def end_transaction(context: TransactionContext, request: EndTransaction) -> None:
    entry = context.find(request)
    if entry is None:
        context.reply(request.token, ProducerResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    elif request.raises_epoch:
        _end_and_raise_epoch(context, entry, request)
    else:
        _end(context, entry, request)


# With the epoch as it is.


def _end(context: TransactionContext, entry: TransactionalIdEntry, request: EndTransaction) -> None:
    error = _end_error(entry, request)
    if error is not None:
        context.report_if_fenced(entry, request, error)
        context.reply(request.token, ProducerResult(error))
        return
    metadata = entry.metadata
    target = metadata._replace(
        state=TransactionState.PREPARE_COMMIT if request.commit else TransactionState.PREPARE_ABORT,
        last_update_ms=context.wall_ms,
        previous_producer_id=metadata.producer_id,
        client_version=0,
    )
    context.write_transition(
        entry,
        target,
        entry.last_epoch,
        token=request.token,
        result=ProducerResult(ErrorCode.NONE),
        refusal=ProducerResult,
        fact=decided(context, entry, target, _reason(request)),
    )


def _reason(request: EndTransaction) -> AbortReason | None:
    return None if request.commit else AbortReason.PRODUCER


def _end_error(entry: TransactionalIdEntry, request: EndTransaction) -> ErrorCode | None:
    """None: the open transaction is to be ended. NONE: it was, and the client did not hear of it."""
    metadata = entry.metadata
    if request.producer_id != metadata.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if request.producer_epoch != metadata.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if entry.busy_error is not None:
        return entry.busy_error
    if metadata.state is TransactionState.ONGOING:
        return None
    return ErrorCode.NONE if metadata.state is _COMPLETE[request.commit] else ErrorCode.INVALID_TXN_STATE


# With the next epoch.


def _end_and_raise_epoch(context: TransactionContext, entry: TransactionalIdEntry, request: EndTransaction) -> None:
    metadata = entry.metadata
    # By level 2 the coordinator too ends transactions so. Where the older protocol has ended the last one, its producer
    # has the epoch from InitProducerId, and has replaced the one before: that must not be given the epoch.
    raised_epoch = metadata.client_version >= 2 or context.transaction_version() < 2
    error = _raising_error(entry, request, raised_epoch=raised_epoch)
    # The epoch that fenced the last one is for no client: the repetition of such an abort takes it to the next id.
    if error is not None and (error is not ErrorCode.NONE or metadata.producer_epoch != EPOCH_MAX):
        pair = (metadata.producer_id, metadata.producer_epoch) if error is ErrorCode.NONE else ()
        context.report_if_fenced(entry, request, error)
        context.reply(request.token, ProducerResult(error, *pair))
        return
    next_producer_id = NO_PRODUCER_ID
    if metadata.is_epoch_exhausted:
        taken = context.take_producer_id()
        if taken is None:
            context.reply(request.token, ProducerResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        next_producer_id = taken
    # The pair as it will be after the completion, not that of the record.
    if next_producer_id != NO_PRODUCER_ID:
        result = ProducerResult(ErrorCode.NONE, next_producer_id, 0)
    else:
        result = ProducerResult(ErrorCode.NONE, metadata.producer_id, metadata.producer_epoch + 1)
    decide_and_raise_epoch(
        context,
        entry,
        reason=_reason(request),
        next_producer_id=next_producer_id,
        token=request.token,
        result=result,
        refusal=ProducerResult,
    )


def _raising_error(entry: TransactionalIdEntry, request: EndTransaction, *, raised_epoch: bool) -> ErrorCode | None:
    """None: the transaction is to be ended. NONE: it was, and the client did not hear of it. `raised_epoch`: the end of
    the last transaction may have."""
    metadata = entry.metadata
    is_same_id = request.producer_id == metadata.producer_id
    is_before_rollover = (
        request.producer_id == metadata.previous_producer_id
        and request.producer_epoch == EPOCH_MAX - 1
        and metadata.producer_epoch == 0
    )
    if entry.busy_error is not None:
        return entry.busy_error
    if not is_same_id and not is_before_rollover:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if is_before_rollover or (is_same_id and request.producer_epoch + 1 == metadata.producer_epoch):
        error = _repeated(metadata.state, commit=request.commit)
        return error if raised_epoch or error is not ErrorCode.NONE else ErrorCode.PRODUCER_FENCED
    if request.producer_epoch != metadata.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    # An abort is legal without a transaction: the client cannot know whether its failed produce registered anything.
    if metadata.state is TransactionState.ONGOING or not request.commit:
        return None
    return ErrorCode.INVALID_TXN_STATE


def _repeated(state: TransactionState, *, commit: bool) -> ErrorCode:
    if state is _COMPLETE[commit]:
        return ErrorCode.NONE
    is_other_outcome = state is _COMPLETE[not commit]
    return ErrorCode.INVALID_TXN_STATE if is_other_outcome else ErrorCode.PRODUCER_FENCED

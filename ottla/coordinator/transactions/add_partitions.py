"""Registering the partitions that a transaction writes to, and asking whether they are registered (§13.4)."""

from typing import Final

from ottla.coordinator.transactions.context import TransactionContext
from ottla.coordinator.transactions.entry import (
    NO_GROUPS,
    TransactionalIdEntry,
    TransactionMetadata,
    TransactionState,
)
from ottla.coordinator.transactions.events import AddPartitions, VerifyPartitions, VerifyResult
from ottla.coordinator.transactions.facts import NAMES_MAX, TransactionBegan
from ottla.coordinator.transactions.participants import NO_PARTICIPANTS
from ottla.protocol.errors import ErrorCode

PARTICIPANTS_MAX: Final = 100_000
TOPICS_MAX: Final = 10_000
"""A record with so many is read in 20 ms, and built by a coordinator that has just read it in 10."""


def add_partitions(context: TransactionContext, request: AddPartitions) -> None:
    entry = context.find(request)
    error = _add_error(entry, request)
    if entry is None or error is not None:
        context.report_if_fenced(entry, request, error)
        context.reply(request.token, error or ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return
    metadata = entry.metadata
    is_open = metadata.state is TransactionState.ONGOING
    _note_group(entry, request.group_id, is_open=is_open)
    if is_open and all(each in metadata.partitions for each in request.partitions):
        context.reply(request.token, ErrorCode.NONE)
        return
    partitions = (metadata.partitions if is_open else NO_PARTICIPANTS).with_added(request.partitions)
    if len(partitions) > PARTICIPANTS_MAX or partitions.topic_count > TOPICS_MAX:
        context.reply(request.token, ErrorCode.UNKNOWN_SERVER_ERROR)
        return
    target = metadata._replace(
        state=TransactionState.ONGOING,
        partitions=partitions,
        last_update_ms=context.wall_ms,
        start_ms=metadata.start_ms if is_open else context.wall_ms,
        previous_producer_id=metadata.producer_id,
        client_version=request.client_version,
    )
    fact = None if is_open or not context.is_observed() else _began(entry, target)
    context.write_transition(entry, target, entry.last_epoch, token=request.token, result=ErrorCode.NONE, fact=fact)


def _note_group(entry: TransactionalIdEntry, group_id: str | None, *, is_open: bool) -> None:
    if not is_open:
        entry.group_ids = NO_GROUPS
    if group_id is not None and len(entry.group_ids) < NAMES_MAX:
        entry.group_ids |= {group_id}


def _began(entry: TransactionalIdEntry, target: TransactionMetadata) -> TransactionBegan:
    return TransactionBegan(
        transactional_id=entry.transactional_id,
        producer_id=target.producer_id,
        producer_epoch=target.producer_epoch,
        start_ms=target.start_ms,
        transaction_timeout_ms=target.timeout_ms,
    )


def _add_error(entry: TransactionalIdEntry | None, request: AddPartitions) -> ErrorCode | None:
    """A pending transition comes first: while an exhausted epoch is rolled over, the client already has the new pair,
    and must not be answered that it is fenced (KAFKA-18660)."""
    if entry is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return entry.busy_error or _pair_error(entry, request)


def _pair_error(entry: TransactionalIdEntry, request: AddPartitions | VerifyPartitions) -> ErrorCode | None:
    """An epoch that is greater than the stored one fences as well: it was never given."""
    if request.producer_id != entry.metadata.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if request.producer_epoch != entry.metadata.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if entry.metadata.is_decided:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return None


def verify_partitions(context: TransactionContext, request: VerifyPartitions) -> None:
    """Nothing changes, and what is pending does not count: only what is durable is registered.

    The leader that asks has a guard, which ends if the transaction ends before the answer.
    """
    entry = context.find(request)
    error = ErrorCode.INVALID_PRODUCER_ID_MAPPING if entry is None else _pair_error(entry, request)
    if entry is None or error is not None:
        context.report_if_fenced(entry, request, error)
        context.reply(request.token, VerifyResult(error or ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        return
    registered = entry.metadata.partitions
    missing = frozenset(each for each in request.partitions if each not in registered)
    context.reply(request.token, VerifyResult(ErrorCode.NONE, missing))

"""What the coordinator says about transactional ids."""

from collections.abc import Iterator
from typing import Final

from ottla.coordinator.transactions.context import TransactionContext
from ottla.coordinator.transactions.entry import TransactionalIdEntry, TransactionState
from ottla.coordinator.transactions.events import (
    DescribeTransaction,
    DescriptionResult,
    ListedId,
    ListTransactionalIds,
)
from ottla.protocol.errors import ErrorCode

IDS_PER_SLICE: Final = 1000
CHARACTERS_PER_SLICE: Final = 20_000
"""To match a pattern takes some microseconds for each id, and a microsecond for each character at worst."""

STATE_NAMES: Final = frozenset(state.kafka_name for state in TransactionState)
"""Those that a filter may name."""


def describe_transaction(context: TransactionContext, request: DescribeTransaction) -> None:
    entry = context.find(request)
    if entry is None or _is_being_removed(entry):
        # In Kafka too an id whose tombstone is on its way is gone.
        result = DescriptionResult(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    else:
        partitions = frozenset(entry.missing_markers) if entry.metadata.is_decided else entry.metadata.partitions
        result = DescriptionResult(ErrorCode.NONE, entry.metadata, partitions)
    context.reply(request.token, result)


def list_transactional_ids(context: TransactionContext, request: ListTransactionalIds) -> None:
    """Those that pass all filters, as they are: what is pending does not count."""
    context.run(_list_in_slices(context, request))


def _list_in_slices(context: TransactionContext, request: ListTransactionalIds) -> Iterator[None]:
    listed: list[ListedId] = []
    ids = characters = 0
    for entry in list(context.entries.values()):
        if not _is_being_removed(entry) and _matches(entry, request, context.wall_ms):
            metadata = entry.metadata
            listed.append(ListedId(entry.transactional_id, metadata.producer_id, metadata.state.kafka_name))
        ids += 1
        characters += 0 if request.matches is None else len(entry.transactional_id)
        if ids >= IDS_PER_SLICE or characters >= CHARACTERS_PER_SLICE:
            ids = characters = 0
            yield
    context.reply(request.token, tuple(listed))


def _is_being_removed(entry: TransactionalIdEntry) -> bool:
    return entry.pending is not None and entry.pending.target is None


def _matches(entry: TransactionalIdEntry, request: ListTransactionalIds, wall_ms: int) -> bool:
    metadata = entry.metadata
    if request.state_names and metadata.state.kafka_name not in request.state_names:
        return False
    if request.producer_ids and metadata.producer_id not in request.producer_ids:
        return False
    # Without a transaction the start is -1, which is longer ago than anything.
    if request.open_longer_than_ms >= 0 and wall_ms - metadata.start_ms <= request.open_longer_than_ms:
        return False
    return request.matches is None or request.matches(entry.transactional_id)

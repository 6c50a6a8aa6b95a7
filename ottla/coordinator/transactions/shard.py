"""What a partition of `__transaction_state` holds: its transactional ids, and which request goes where."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from ottla.coordinator.runtime.effects import TimerFired
from ottla.coordinator.transactions import add_partitions, decisions, describe, end_txn, expiry, init_producer_id
from ottla.coordinator.transactions.context import TransactionConfig, TransactionContext
from ottla.coordinator.transactions.entry import TransactionalIdEntry, TransactionMetadata
from ottla.coordinator.transactions.events import (
    AbortTimedOutTransactions,
    AddPartitions,
    DescribeTransaction,
    DescriptionResult,
    EndTransaction,
    ExpireTransactionalIds,
    InitializeProducer,
    ListTransactionalIds,
    MarkersWritten,
    ProducerResult,
    TransactionRequest,
    VerifyPartitions,
    VerifyResult,
)
from ottla.coordinator.transactions.records import parse_transaction_key, parse_transaction_value
from ottla.protocol.errors import ErrorCode


def _timer_fired(context: TransactionContext, event: TimerFired) -> None:
    decisions.retry_completion(context, event.key)


REQUESTS: Final[Mapping[type, Callable[[Any, Any], None]]] = MappingProxyType(
    {
        InitializeProducer: init_producer_id.initialize_producer,
        AddPartitions: add_partitions.add_partitions,
        VerifyPartitions: add_partitions.verify_partitions,
        EndTransaction: end_txn.end_transaction,
        DescribeTransaction: describe.describe_transaction,
        ListTransactionalIds: describe.list_transactional_ids,
    }
)
EVENTS: Final[Mapping[type, Callable[[Any, Any], None]]] = MappingProxyType(
    {
        TimerFired: _timer_fired,
        MarkersWritten: decisions.markers_written,
        AbortTimedOutTransactions: expiry.abort_timed_out,
        ExpireTransactionalIds: expiry.expire_ids,
    }
)


def transaction_request_error(config: TransactionConfig, request: TransactionRequest) -> ErrorCode | None:
    """The first checks of all, wherever the transactional id is coordinated."""
    if isinstance(request, ListTransactionalIds):
        return None
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if isinstance(request, InitializeProducer) and not 0 < request.timeout_ms <= config.transaction_max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return None


class TransactionShard:
    """The `CoordinatorShard` of `__transaction_state`."""

    requests = REQUESTS
    events = EVENTS
    timeline = None

    def __init__(
        self,
        config: TransactionConfig,
        take_producer_id: Callable[[], int | None],
        transaction_version: Callable[[], int],
        is_observed: Callable[[], bool] = lambda: True,
        note_producer_id: Callable[[int], None] = lambda _: None,
    ) -> None:
        """The functions are those of `TransactionContext`; `note_producer_id` gets the producer ids that are found in
        the log."""
        self.context = TransactionContext(config, take_producer_id, transaction_version, is_observed)
        self._config = config
        self._note_producer_id = note_producer_id

    @property
    def entries(self) -> Mapping[str, TransactionalIdEntry]:
        """To be looked at and not touched."""
        return self.context.entries

    def request_error(self, request: TransactionRequest) -> ErrorCode | None:
        return transaction_request_error(self._config, request)

    @staticmethod
    def refusal(request: TransactionRequest, error: ErrorCode) -> object:
        match request:
            case InitializeProducer() | EndTransaction():
                return ProducerResult(error)
            case VerifyPartitions():
                return VerifyResult(error)
            case DescribeTransaction():
                return DescriptionResult(error)
            case AddPartitions() | ListTransactionalIds():
                return error

    # As the runtime calls it

    def replay(self, key: bytes, value: bytes | None, record_offset: int, producer_id: int | None = None) -> None:  # noqa: ARG002
        transactional_id = parse_transaction_key(key)
        if transactional_id is None:
            return
        if value is None:
            self.context.remove(transactional_id)
            return
        entries = self.context.entries
        entry = entries.get(transactional_id)
        if entry is None:
            entries[transactional_id] = TransactionalIdEntry(transactional_id, self._found(value))
        else:
            entry.replay(entry.target_of(value) or self._found(value))

    def _found(self, value: bytes) -> TransactionMetadata:
        metadata = parse_transaction_value(value)
        self._note_producer_id(max(metadata.producer_id, metadata.next_producer_id))
        return metadata

    def replay_marker(self, producer_id: int, *, commit: bool) -> Iterator[None]:  # noqa: ARG002
        """Nothing in this topic is written by transactions."""
        return iter(())

    def on_committed(self, owner: str) -> None:
        entry = self.context.entries.get(owner)
        if entry is None:
            return
        self.context.report_committed(entry)
        if entry.metadata.is_decided and entry.pending is None:
            decisions.begin_markers(self.context, entry)

    def on_elected(self) -> Iterator[None]:
        return decisions.resume_decided(self.context)

    def on_resigned(self) -> None:
        """No request is parked but those whose record is on its way, which the runtime answers."""

    def clear(self) -> None:
        self.context.entries.clear()

"""What the steps of one `__transaction_state` partition work with, and the one way of a transition into the log."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ottla.coordinator.facts import Fact
from ottla.coordinator.runtime.appends import IN_DOUBT
from ottla.coordinator.runtime.effects import CoordinatorRecord
from ottla.coordinator.runtime.step_context import AfterAppend, StepContext
from ottla.coordinator.transactions.entry import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    PendingTransition,
    TransactionalIdEntry,
    TransactionMetadata,
    TransactionState,
)
from ottla.coordinator.transactions.events import IdRequest, ProducerRequest
from ottla.coordinator.transactions.facts import FencedProducerRefused
from ottla.coordinator.transactions.records import (
    ROOM_TO_END_BYTES,
    build_transaction_key,
    build_transaction_value,
)
from ottla.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Kafka's defaults. Field names are the property names with `.` written `_`."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000


class BegunAhead(NamedTuple):
    """Of a transaction that has begun in the future, by the clock of this broker."""

    start_ms: int
    seen_ms: int
    """When that was seen first, by the clock that is never set."""


class TransactionContext(StepContext):
    __slots__ = ("_begun_ahead", "config", "entries", "is_observed", "take_producer_id", "transaction_version")

    def __init__(
        self,
        config: TransactionConfig,
        take_producer_id: Callable[[], int | None],
        transaction_version: Callable[[], int],
        is_observed: Callable[[], bool],
    ) -> None:
        """`take_producer_id` gives one that was never given before, or None while there is none at hand.

        `transaction_version` gives the cluster's level of the feature, which decides how the coordinator itself aborts,
        and the version of records. `is_observed` says whether anyone asks for the facts that are not logged."""
        super().__init__()
        self.config = config
        self.transaction_version = transaction_version
        self.is_observed = is_observed
        self.take_producer_id = take_producer_id
        self.entries: dict[str, TransactionalIdEntry] = {}
        self._begun_ahead: dict[str, BegunAhead] = {}

    def find(self, request: IdRequest) -> TransactionalIdEntry | None:
        return self.entries.get(request.transactional_id)

    def remove(self, transactional_id: str) -> None:
        """By its tombstone."""
        self.entries.pop(transactional_id, None)
        self._begun_ahead.pop(transactional_id, None)

    def begun_ahead(self, entry: TransactionalIdEntry) -> BegunAhead | None:
        """Of an open transaction that begins in the future, or did when that was seen first; None of others."""
        start_ms, ahead = entry.metadata.start_ms, self._begun_ahead.get(entry.transactional_id)
        if ahead is not None and ahead.start_ms == start_ms:
            return ahead
        if start_ms <= self.wall_ms:
            return None
        ahead = self._begun_ahead[entry.transactional_id] = BegunAhead(start_ms, self.now_ms)
        return ahead

    def write_transition(
        self,
        entry: TransactionalIdEntry,
        target: TransactionMetadata,
        last_epoch: int,
        *,
        token: int | None = None,
        result: Any = None,
        refusal: Callable[[ErrorCode], Any] = lambda error: error,
        fact: Fact | None = None,
    ) -> None:
        """Prepare the transition and append its record. The request with `token` is answered with `result`, and `fact`
        reported, when the record is committed; else the answer is the `refusal` of the error."""
        self.prepare(entry, target, last_epoch, fact)
        self.append_pending(entry, TransitionAppend(entry, token, result, refusal))

    def prepare(
        self, entry: TransactionalIdEntry, target: TransactionMetadata, last_epoch: int, fact: Fact | None = None
    ) -> PendingTransition:
        """Prepare the transition to what the record can hold. Version 0 has no room for a next producer id, which was
        promised to the client, nor for the one before, by which the client is known until it has heard of the other."""
        is_rollover = (target.next_producer_id, entry.metadata.next_producer_id) != (NO_PRODUCER_ID, NO_PRODUCER_ID)
        if not self.transaction_version() and not is_rollover:
            target = _as_of_version_0(target)
        return entry.prepare(target, last_epoch, fact)

    def report_committed(self, entry: TransactionalIdEntry) -> None:
        """What there is to report of the transition whose record was just committed."""
        if entry.committed_fact is not None:
            self.observe(entry.committed_fact)
            entry.committed_fact = None

    def report_if_fenced(
        self, entry: TransactionalIdEntry | None, request: ProducerRequest, error: ErrorCode | None
    ) -> None:
        """Of a request that is refused with `error`. A fenced producer may ask as often as it likes."""
        if entry is None or error is not ErrorCode.PRODUCER_FENCED:
            return
        current = entry.metadata.producer_id, entry.metadata.producer_epoch
        if entry.refused_below != current:
            entry.refused_below = current
            self.observe(
                FencedProducerRefused(
                    transactional_id=entry.transactional_id,
                    producer_id=request.producer_id,
                    producer_epoch=request.producer_epoch,
                    current_producer_epoch=entry.metadata.producer_epoch,
                )
            )

    def append_pending(self, entry: TransactionalIdEntry, after: AfterAppend) -> None:
        """Append the record of the transition that is prepared."""
        assert entry.pending is not None, f"{entry.transactional_id}: there is no transition to append"
        target = entry.pending.target
        assert target is not None, "tombstones share a batch"
        # The level may have been lowered since it was prepared.
        version = 0 if not self.transaction_version() and target == _as_of_version_0(target) else 1
        key = build_transaction_key(entry.transactional_id)
        value = build_transaction_value(target, version)
        if target.state is TransactionState.ONGOING and self._leaves_no_room_to_end(key, value):
            after.failed(self, ErrorCode.MESSAGE_TOO_LARGE)
            return
        entry.pending.value = value
        record = CoordinatorRecord(key, value)
        self.append(entry.transactional_id, (record,), after, ends_transaction=target.ends_transaction)

    def _leaves_no_room_to_end(self, key: bytes, value: bytes) -> bool:
        """The records that follow would not fit into the log. They are stored all the same, for the bound may have been
        lowered since; but nothing shall make them larger than what the log is said to hold."""
        return len(key) + len(value) + ROOM_TO_END_BYTES > self.batch_bytes_max()


def _as_of_version_0(target: TransactionMetadata) -> TransactionMetadata:
    return target._replace(previous_producer_id=NO_PRODUCER_ID, next_producer_id=NO_PRODUCER_ID, client_version=0)


class TransitionAppend:
    """A transition's record is on its way."""

    __slots__ = ("_entry", "_number", "_refusal", "_result", "_token")

    def __init__(
        self, entry: TransactionalIdEntry, token: int | None, result: Any, refusal: Callable[[ErrorCode], Any]
    ) -> None:
        assert entry.pending is not None, "the transition is prepared first"
        self._entry = entry
        self._number = entry.pending.number
        self._token = token
        self._result = result
        self._refusal = refusal

    def completed(self, context: TransactionContext) -> None:
        if self._token is not None:
            context.reply(self._token, self._result)

    def failed(self, context: TransactionContext, error: ErrorCode) -> None:
        give_up(context, self._entry, self._number, error)
        if self._token is not None:
            context.reply(self._token, self._refusal(coordinator_error(error)))


def give_up(context: TransactionContext, entry: TransactionalIdEntry, number: int, error: ErrorCode) -> None:
    """The append of a transition failed: the entry keeps its old values. In doubt it stays pending."""
    if not entry.is_pending(number):
        return
    assert entry.pending is not None, "it is pending"
    if error in IN_DOUBT:
        entry.pending.is_in_doubt = True
        return
    entry.pending = None
    if not entry.exists_in_log and context.entries.get(entry.transactional_id) is entry:
        del context.entries[entry.transactional_id]


_ANSWERS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """What a client is answered when a record could not be stored (§13.2.2)."""
    return _ANSWERS.get(error, error)


def starting_entry(transactional_id: str, producer_id: int, timeout_ms: int) -> TransactionalIdEntry:
    """Of an id that the log does not know."""
    return TransactionalIdEntry(
        transactional_id, TransactionMetadata(producer_id=producer_id, producer_epoch=NO_EPOCH, timeout_ms=timeout_ms)
    )

"""The state of one transactional id, and which transitions it may make (docs/semantics §13.2).

What is stored is a `TransactionMetadata`; it is a value, and only replaying a record puts another into the entry. A
transition is prepared first: its target is checked against the table and the guards below, and stays aside while its
record is on its way. Requests see the old values until then, and find the entry *pending*, of which there is at most
one transition. When the record is committed, `replay` puts the target in place of the old values.

Who may do what, state by state:

    EMPTY             a producer has its id and epoch; the first partition begins a transaction; expires
    ONGOING           partitions are registered; EndTxn decides, the timeout and a newer producer abort
    PREPARE_COMMIT    decided: every partition gets a COMMIT marker, then the transaction is complete
    PREPARE_ABORT     the same with ABORT
    COMPLETE_COMMIT   as EMPTY; a repeated EndTxn(commit) is answered without error
    COMPLETE_ABORT    as EMPTY; a repeated EndTxn(abort) is answered without error
    DEAD              the tombstone of an expired id is being written

PREPARE_EPOCH_FENCE is a name that Kafka knows in filters; here the epoch of a fenced producer is raised by the record
of PREPARE_ABORT itself.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.coordinator.facts import Fact
from ottla.coordinator.transactions.participants import NO_PARTICIPANTS, Participant, Participants
from ottla.protocol.errors import ErrorCode

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
NONE_MISSING: Final[frozenset[Participant]] = frozenset()
"""One for all entries: most are idle, and a set of its own is 216 bytes."""
NO_GROUPS: Final[frozenset[str]] = frozenset()
EPOCH_MAX: Final = 32767
"""Never given to a client: it is kept so that a producer can always be fenced."""
NEVER_TIMES_OUT_MS: Final = 2147483647
"""Of two-phase commit, which other brokers' data may have."""


class TransactionState(IntEnum):
    """The number is that of the record."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        return self.name.title().replace("_", "")


_IDLE: Final = {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
_DECIDED: Final = {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}
_ENDS: Final = _DECIDED | {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}

VALID_PREVIOUS: Final[dict[TransactionState, set[TransactionState]]] = {
    TransactionState.EMPTY: _IDLE,
    TransactionState.ONGOING: _IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: {TransactionState.ONGOING},
    # From the others when a producer of KIP-890 aborts a transaction of which no partition was registered.
    TransactionState.PREPARE_ABORT: _IDLE | {TransactionState.ONGOING},
    TransactionState.COMPLETE_COMMIT: {TransactionState.PREPARE_COMMIT},
    TransactionState.COMPLETE_ABORT: {TransactionState.PREPARE_ABORT},
    TransactionState.DEAD: _IDLE,
    TransactionState.PREPARE_EPOCH_FENCE: set(),
}


class TransactionMetadata(NamedTuple):
    """What the log says of a transactional id."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: Participants = NO_PARTICIPANTS
    last_update_ms: int = NO_TIME
    start_ms: int = NO_TIME
    """When the first partition was registered."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last transition."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id that the client was promised for after the completion."""
    client_version: int = 0
    """2 if the request that made the last transition was one of KIP-890, else 0."""

    @property
    def is_idle(self) -> bool:
        return self.state in _IDLE

    @property
    def is_decided(self) -> bool:
        return self.state in _DECIDED

    @property
    def ends_transaction(self) -> bool:
        """Whether its record ends one, or a part of that."""
        return self.state in _ENDS

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= EPOCH_MAX - 1


@dataclass(slots=True)
class PendingTransition:
    number: int
    """Counts the transitions of the entry: what comes back for an older one is dropped."""
    target: TransactionMetadata | None
    """None: the tombstone."""
    last_epoch: int
    fact: Fact | None = None
    """What is reported when its record is committed."""
    value: bytes | None = None
    """Of its record, once that is on its way."""
    is_in_doubt: bool = False
    """Its append failed in a way that leaves the record in the log. It may still become committed, so that nothing else
    is decided until it does or leadership ends."""


class TransactionalIdEntry:
    __slots__ = (
        "_last_number",
        "committed_fact",
        "group_ids",
        "last_epoch",
        "metadata",
        "missing_markers",
        "pending",
        "refused_below",
        "transactional_id",
    )

    def __init__(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        self.transactional_id = transactional_id
        self.metadata = metadata
        # The epoch before the last rise that the client knows of: it recognizes an InitProducerId that is repeated. Not
        # stored, and not to be derived: a fenced producer must not be given the epoch of the newer one.
        self.last_epoch = NO_EPOCH
        self.pending: PendingTransition | None = None
        # Of a decided transaction: partitions that have not acknowledged its marker.
        self.missing_markers: AbstractSet[Participant] = NONE_MISSING
        # For the facts alone. Of the open transaction: groups whose offsets are part of it, a few at most.
        self.group_ids: frozenset[str] = NO_GROUPS
        # Of the transition that was committed last, until it is reported.
        self.committed_fact: Fact | None = None
        # The id and epoch below which a fenced producer has been reported.
        self.refused_below: tuple[int, int] | None = None
        self._last_number = 0

    @property
    def exists_in_log(self) -> bool:
        """Not yet, if it was made for a request whose record is on its way."""
        return self.metadata.producer_epoch != NO_EPOCH

    @property
    def busy_error(self) -> ErrorCode | None:
        """Why no transition can be prepared now."""
        if self.pending is None:
            return None
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if self.pending.is_in_doubt else ErrorCode.CONCURRENT_TRANSACTIONS

    def prepare(
        self, target: TransactionMetadata | None, last_epoch: int, fact: Fact | None = None
    ) -> PendingTransition:
        assert self.pending is None, f"{self.transactional_id}: two transitions at once"
        _check_transition(self.metadata, target)
        self._last_number += 1
        self.pending = PendingTransition(self._last_number, target, last_epoch, fact)
        return self.pending

    def is_pending(self, number: int) -> bool:
        """Whether that transition is still under way."""
        return self.pending is not None and self.pending.number == number

    def target_of(self, value: bytes) -> TransactionMetadata | None:
        """What the value of a record says, if it is the very one of the pending transition."""
        pending = self.pending
        return pending.target if pending is not None and pending.value is value else None

    def replay(self, metadata: TransactionMetadata) -> None:
        """The record of the pending transition is committed; without one, the log is being loaded."""
        if self.pending is not None:
            assert metadata == self.pending.target, f"{self.transactional_id}: the log has another transition"
            self.last_epoch = self.pending.last_epoch
            self.committed_fact = self.pending.fact
            self.pending = None
        self.metadata = metadata


def _check_transition(old: TransactionMetadata, target: TransactionMetadata | None) -> None:
    """What only a bug can violate."""
    state = TransactionState.DEAD if target is None else target.state
    assert old.state in VALID_PREVIOUS[state], f"{old.state.name} cannot become {state.name}"
    if target is None:
        return
    is_same_epoch = (target.producer_id, target.producer_epoch) == (old.producer_id, old.producer_epoch)
    is_next_epoch = (target.producer_id, target.producer_epoch) == (old.producer_id, old.producer_epoch + 1)
    is_new_id = target.producer_id != old.producer_id and target.producer_epoch == 0
    match state:
        case TransactionState.EMPTY:
            assert is_same_epoch or is_next_epoch or is_new_id, f"{old} cannot be initialized as {target}"
            assert not target.partitions, "a producer without a transaction has partitions"
            return
        case TransactionState.ONGOING:
            assert is_same_epoch, "adding a partition changes no epoch"
            assert target.partitions.has_grown_from(old.partitions), "a partition left the transaction"
        case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
            assert is_same_epoch or is_next_epoch, f"{old} cannot be decided as {target}"
            assert target.partitions is old.partitions, "a decision changes no partition"
        case _:
            assert is_same_epoch or (is_new_id and target.producer_id == old.next_producer_id), "not the promised id"
            assert not target.partitions, "a complete transaction has partitions"
    assert target.timeout_ms == old.timeout_ms, "only InitProducerId changes the timeout"
    assert target.start_ms == old.start_ms or old.is_idle, "an open transaction began at another time"

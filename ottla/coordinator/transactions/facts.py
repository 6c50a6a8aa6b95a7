"""Facts about transactional ids, as `ottla.coordinator.facts` has them about groups: for the log and `ottla.events`.

Each is reported when its record is committed, so that nothing is said that a later coordinator does not know. What a
coordinator remembers beside the log, such as why it aborted, is lost with it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from ottla.coordinator.facts import Fact

NAMES_MAX: Final = 16
"""Of topics and groups in one fact: a transaction may have thousands."""


class Outcome(StrEnum):
    COMMIT = "commit"
    ABORT = "abort"


class AbortReason(StrEnum):
    """Why a transaction was aborted."""

    PRODUCER = "by its producer"
    PRODUCER_RESTARTED = "its producer asked for a new epoch"
    FENCED = "fenced by another producer"
    TIMED_OUT = "timed out"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TransactionalFact(Fact):
    """What all facts about a transactional id have."""

    transactional_id: str
    """The transactional id."""
    producer_id: int
    """The producer id that the coordinator gave the producer."""
    producer_epoch: int
    """The epoch of the producer: a greater one fences it."""

    @property
    def key(self) -> str:
        return self.transactional_id


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ProducerInitialized(TransactionalFact):
    """A producer has its producer id and epoch. One that had the transactional id before is fenced."""

    event: ClassVar = "producer_initialized"

    transaction_timeout_ms: int
    """How long a transaction of the producer may be open."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FencedProducerRefused(TransactionalFact):
    """A producer that another one has fenced, or whose transaction has timed out, still asks. Reported once for each
    epoch that fences."""

    event: ClassVar = "producer_fenced"
    level: ClassVar = "info"

    producer_id: int
    """The producer id that the fenced producer gave."""
    producer_epoch: int
    """The epoch that the fenced producer gave."""
    current_producer_epoch: int
    """The epoch that fences it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TransactionBegan(TransactionalFact):
    """The first partition of a transaction is registered."""

    event: ClassVar = "transaction_began"

    start_ms: int
    """When the transaction began, by the clock of its coordinator: a `wall_ms`. With the transactional id it is the
    transaction's name."""
    transaction_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TransactionTimedOut(TransactionalFact):
    """A transaction was open for longer than its producer had asked for. `transaction_decided` follows; if the abort
    cannot be stored, the next attempt is reported again."""

    event: ClassVar = "transaction_timed_out"
    level: ClassVar = "info"

    start_ms: int
    transaction_timeout_ms: int
    open_ms: int
    """How long the transaction was open."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TransactionDecided(TransactionalFact):
    """The outcome of a transaction is stored, and final. Its markers are not written yet."""

    event: ClassVar = "transaction_decided"

    producer_epoch: int
    """The epoch of the transaction. One that is aborted against its producer is ended with a greater one."""
    start_ms: int
    outcome: Outcome
    """`commit` or `abort`."""
    reason: AbortReason | None
    """Why a transaction is aborted: `by its producer`, `its producer asked for a new epoch`, `fenced by another
    producer` or `timed out`; left out of a commit."""
    open_ms: int
    partitions: int
    """How many partitions are part of the transaction, those of `__consumer_offsets` included."""
    topics: tuple[str, ...]
    """The topics of these partitions in order, 16 at most."""
    group_ids: tuple[str, ...]
    """The groups whose offsets are part of the transaction in order, 16 at most; those that the producer has named to
    this coordinator."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TransactionIsComplete(TransactionalFact):
    """All markers of a transaction are written: consumers of committed records see what it committed, or read on."""

    event: ClassVar = "transaction_completed"

    producer_epoch: int
    """The epoch of the next transaction."""
    start_ms: int
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TransactionalIdExpired(TransactionalFact):
    """A transactional id was not used for `transactional.id.expiration.ms` and is removed."""

    event: ClassVar = "transactional_id_expired"
    level: ClassVar = "info"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TransactionEndedByOperator(Fact):
    """Somebody who is no broker has ended a transaction in a partition, as `ottla transactions abort` does."""

    event: ClassVar = "transaction_ended_by_operator"
    level: ClassVar = "warning"

    topic: str
    """The topic."""
    partition: int
    """The partition."""
    producer_id: int
    """The producer whose transaction it is."""
    producer_epoch: int
    """The epoch of that producer."""
    outcome: Outcome
    client_id: str | None
    """The client id of the request."""

    @property
    def key(self) -> str:
        return f"{self.topic}-{self.partition}"

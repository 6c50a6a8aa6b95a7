"""What can happen to the transactional ids of one `__transaction_state` partition, and the answers to requests.

Requests know no versions: the errors are those of the newest, and the handler translates them for older clients.
Every request has a token; its answer is one `Reply` with the result that is named beside it.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ottla.coordinator.transactions.entry import NO_EPOCH, NO_PRODUCER_ID, TransactionMetadata
from ottla.coordinator.transactions.participants import Participant
from ottla.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class InitializeProducer:
    """InitProducerId with a transactional id → `ProducerResult`."""

    token: int
    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    """What the client has, when it asks for its next epoch (KIP-360); -1: it has just started."""
    producer_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Register partitions → `ErrorCode`, for all of them."""

    token: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[Participant]
    client_version: int = 0
    """2 if the leader of a partition asks while it handles a request of the producer (KIP-890)."""
    group_id: str | None = None
    """The group whose offsets the partition is for."""


@dataclass(frozen=True, slots=True)
class VerifyPartitions:
    """Whether partitions are registered → `VerifyResult`."""

    token: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[Participant]


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """EndTxn → `ProducerResult`."""

    token: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    raises_epoch: bool = False
    """Version 5 and later: the next transaction has another epoch (KIP-890)."""


@dataclass(frozen=True, slots=True)
class DescribeTransaction:
    """→ `DescriptionResult`."""

    token: int
    transactional_id: str


@dataclass(frozen=True, slots=True)
class ListTransactionalIds:
    """→ `tuple[ListedId, ...]`, or `ErrorCode`. An empty filter lets all pass."""

    token: int
    state_names: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    open_longer_than_ms: int = -1
    matches: Callable[[str], bool] | None = None
    """Whether a transactional id fits the pattern; its time grows with the length of the id, and not faster."""


ProducerRequest: TypeAlias = InitializeProducer | AddPartitions | VerifyPartitions | EndTransaction
"""They have the producer id and epoch that the producer believes to have."""
IdRequest: TypeAlias = ProducerRequest | DescribeTransaction
TransactionRequest: TypeAlias = IdRequest | ListTransactionalIds

# Other events.


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """Markers of `WriteMarkers(transactional_id, number)` are below the high watermark of these partitions."""

    transactional_id: str
    number: int
    partitions: frozenset[Participant]


@dataclass(frozen=True, slots=True)
class AbortTimedOutTransactions:
    """It is time to look for transactions that are open for too long."""


@dataclass(frozen=True, slots=True)
class ExpireTransactionalIds:
    """It is time to look for ids that no client has used for long."""


class RetryCompletionTimer(NamedTuple):
    transactional_id: str
    number: int


# What the shell is to do.


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Write the transaction's marker into each partition, until all leaders have acknowledged it; report with
    `MarkersWritten`."""

    transactional_id: str
    number: int
    producer_id: int
    producer_epoch: int
    commit: bool
    client_version: int
    partitions: tuple[Participant, ...]


# Results.


class ProducerResult(NamedTuple):
    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class VerifyResult(NamedTuple):
    error: ErrorCode
    """Of all partitions."""
    missing: frozenset[Participant] = frozenset()
    """Without such an error: those that are not registered."""


class DescriptionResult(NamedTuple):
    error: ErrorCode
    metadata: TransactionMetadata | None = None
    partitions: AbstractSet[Participant] = frozenset()
    """Of a decided transaction those whose marker is missing."""


class ListedId(NamedTuple):
    transactional_id: str
    producer_id: int
    state_name: str

"""What a step wants done, in this order, completely, before the next event is handed in; and what is reported back.

A request carries a *token*, an opaque number chosen by the shell; the answer is one later `Reply(token, result)`.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ottla.protocol.errors import ErrorCode
from ottla.timer.clock import TimerKind


class CoordinatorRecord(NamedTuple):
    key: bytes
    value: bytes | None
    """None is a tombstone."""


class ProducerIdAndEpoch(NamedTuple):
    """Whose transaction a batch belongs to. Kafka's name for it."""

    producer_id: int
    producer_epoch: int


class Append(NamedTuple):
    """Append the records as one batch with acks=all; report with `AppendCompleted` or `AppendFailed`."""

    append_id: int
    records: tuple[CoordinatorRecord, ...]
    producer: ProducerIdAndEpoch | None = None
    """Of a transactional batch; it has no sequence."""
    guard: Any = None
    """What the log wants to see of the first batch of a transaction. Only the shell looks at it."""
    ends_transaction: bool = False
    """Of the transaction coordinator: no bound of the log's may refuse it."""


class Reply(NamedTuple):
    """Answer the request that came with `token`. Each token is answered exactly once."""

    token: int
    result: Any


class SetTimer(NamedTuple):
    """Fire `TimerFired(key)` at `deadline_ms` or up to a tick later, never before. Replaces the timer of that key."""

    key: Hashable
    deadline_ms: int
    kind: TimerKind = TimerKind.TRANSPORT


class CancelTimer(NamedTuple):
    key: Hashable


class Observed(NamedTuple):
    """Nothing to do: a fact to log or to count."""

    fact: Any


class Dispatch(NamedTuple):
    """Hand the command to the coordinator's own shell; its outcome is an event that the command names."""

    command: Any


Effect: TypeAlias = Append | Reply | SetTimer | CancelTimer | Observed | Dispatch


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The deadline of `SetTimer(key, …)` has come. A late one, already cancelled or moved, does no harm."""

    key: Any


class AppendCompleted(NamedTuple):
    """The high watermark has passed the records of `Append(append_id)`; the first of them has `base_offset`."""

    append_id: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class TransactionCompleted:
    """The high watermark has passed the marker that ends the producer's transaction in this partition. It is reported
    in the order of the log: after the appends that stand before it, and before those behind it."""

    producer_id: int
    commit: bool


@dataclass(frozen=True, slots=True)
class AppendFailed:
    """The records of `Append(append_id)` were not stored, or not in time.

    After an error that leaves the records in the log (`IN_DOUBT`) an `AppendCompleted` may still follow when the high
    watermark passes them.
    """

    append_id: int
    error: ErrorCode

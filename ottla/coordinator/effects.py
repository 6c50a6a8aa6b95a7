"""What a step wants done, in this order, completely, before the next event is handed in."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ottla.coordinator.events import TimerKey
from ottla.coordinator.facts import Fact
from ottla.coordinator.results import Result


class CoordinatorRecord(NamedTuple):
    key: bytes
    value: bytes | None
    """None is a tombstone."""


@dataclass(frozen=True, slots=True)
class Append:
    """Append the records as one batch with acks=all; report with `AppendCompleted` or `AppendFailed`."""

    append_id: int
    records: tuple[CoordinatorRecord, ...]


class Reply(NamedTuple):
    """Answer the request that came with `token`. Each token is answered exactly once."""

    token: int
    result: Result


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Fire `TimerFired(key)` at `deadline_ms` or up to a tick later, never before. Replaces the timer of that key."""

    key: TimerKey
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    key: TimerKey


@dataclass(frozen=True, slots=True)
class Observed:
    """Nothing to do: a fact to log or to count."""

    fact: Fact


Effect: TypeAlias = Append | Reply | SetTimer | CancelTimer | Observed

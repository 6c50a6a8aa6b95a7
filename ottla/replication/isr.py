"""The in-sync replicas of a partition: as committed, and as the leader has requested to change them (§14.7).

    CommittedIsr ── a follower has caught up ──→ PendingExpandIsr ┐
         ↑  └────── a member lags behind ──────→ PendingShrinkIsr ┤
         └── committed, refused for good, or overtaken by metadata ┘

A leader changes nothing by itself: it asks, by compare-and-set on the partition epoch, and one request at a time is
under way. Until it knows the outcome, both outcomes must be safe. So `maximal`, which the high watermark waits for, has
the replica that joins from the moment of the request, and the one that leaves until its removal is committed; `isr`,
which is counted where `min.insync.replicas` is tested, is what was committed last.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from ottla.protocol.errors import ErrorCode


class IsrMember(NamedTuple):
    broker_id: int
    broker_epoch: int
    """The registration the leader knows it by, or -1 for whichever is current."""


@dataclass(frozen=True, slots=True)
class IsrChange:
    """What a leader asks the controller for. It holds only against exactly these epochs."""

    topic: str
    index: int
    topic_id: bytes
    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]


class CommittedIsr(NamedTuple):
    isr: tuple[int, ...]

    @property
    def maximal(self) -> tuple[int, ...]:
        return self.isr

    @property
    def committed(self) -> "CommittedIsr":
        return self

    @property
    def change(self) -> IsrChange | None:
        """The request that has no answer yet."""
        return None


class PendingExpandIsr(NamedTuple):
    committed: CommittedIsr
    joining: int
    change: IsrChange

    @property
    def isr(self) -> tuple[int, ...]:
        return self.committed.isr

    @property
    def maximal(self) -> tuple[int, ...]:
        return (*self.committed.isr, self.joining)


class PendingShrinkIsr(NamedTuple):
    committed: CommittedIsr
    leaving: tuple[int, ...]
    change: IsrChange

    @property
    def isr(self) -> tuple[int, ...]:
        return self.committed.isr

    @property
    def maximal(self) -> tuple[int, ...]:
        return self.committed.isr


IsrState: TypeAlias = CommittedIsr | PendingExpandIsr | PendingShrinkIsr


class IsrOutcome(Enum):
    """What to do about the answer to an `IsrChange`."""

    ADOPTED = auto()
    """Committed; the leader works with it already."""
    RETURNED = auto()
    """Refused, certainly not committed; the leader may ask for something else."""
    AWAITS_METADATA = auto()
    """The partition was changed elsewhere; nothing is requested until the leader has learnt of it."""
    RESEND = auto()
    """It is unknown whether it was committed: send the same change again."""
    OVERTAKEN = auto()
    """The answer to a request that is void. Drop it."""


_OUTCOMES = {
    ErrorCode.NONE: IsrOutcome.ADOPTED,
    ErrorCode.OPERATION_NOT_ATTEMPTED: IsrOutcome.RETURNED,
    ErrorCode.INELIGIBLE_REPLICA: IsrOutcome.RETURNED,
    ErrorCode.FENCED_LEADER_EPOCH: IsrOutcome.AWAITS_METADATA,
    ErrorCode.INVALID_UPDATE_VERSION: IsrOutcome.AWAITS_METADATA,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: IsrOutcome.AWAITS_METADATA,
    ErrorCode.UNKNOWN_TOPIC_ID: IsrOutcome.AWAITS_METADATA,
    ErrorCode.INVALID_REQUEST: IsrOutcome.AWAITS_METADATA,
    ErrorCode.NEW_LEADER_ELECTED: IsrOutcome.AWAITS_METADATA,
}


def outcome_of(error: ErrorCode) -> IsrOutcome:
    """§14.7.4"""
    return _OUTCOMES.get(error, IsrOutcome.RESEND)

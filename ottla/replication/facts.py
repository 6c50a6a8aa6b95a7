"""What happened to a follower, for the log, for metrics, and for who waits for its partition."""

from dataclasses import dataclass
from typing import TypeAlias

from ottla.protocol.errors import ErrorCode
from ottla.replication.partition import Partition


@dataclass(frozen=True, slots=True)
class Followed:
    """The leader's answer had records, or a higher high watermark: wake who reads here."""

    partition: Partition
    size_bytes: int
    high_watermark_rose: bool


@dataclass(frozen=True, slots=True)
class Truncated:
    """The log parted from the leader's, and what the leader does not have is gone."""

    partition: Partition
    end_offset_before: int
    high_watermark_before: int

    @property
    def lost_committed(self) -> bool:
        """Whether consumers may have seen what went. Only an unclean election, or a leader that lost its tail, does."""
        return self.partition.log.log_end_offset < self.high_watermark_before


@dataclass(frozen=True, slots=True)
class Restarted:
    """The leader has deleted all that this follower has: the log goes on, empty, at the leader's start."""

    partition: Partition
    end_offset_before: int


@dataclass(frozen=True, slots=True)
class BackedOff:
    """The partition rests until `until_ms`."""

    partition: Partition
    error: ErrorCode
    why: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """The leader is in a later term. Nothing is fetched until metadata tells of it."""

    partition: Partition


@dataclass(frozen=True, slots=True)
class Failed:
    """The disk does not play along. Nothing is fetched until the partition is opened anew."""

    partition: Partition
    why: str


Fact: TypeAlias = Followed | Truncated | Restarted | BackedOff | Fenced | Failed

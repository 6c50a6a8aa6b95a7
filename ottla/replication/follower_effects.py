"""What a follower wants done to its log, and what has happened to it.

The shell performs the effects on the log in their order, before it asks the fetcher for another request, and reports
each of them back (`Fetcher.performed`). An effect carries the `log_end_offset` of the log before it. A fact needs
nothing but to be noted.
"""

from typing import NamedTuple, TypeAlias

from ottla.protocol.errors import ErrorCode
from ottla.replication.partition import Partition


class AppendRecords(NamedTuple):
    """Append what the leader has sent, as it is; then take over its high watermark and log start offset."""

    partition: Partition
    records: memoryview
    log_end_offset: int
    high_watermark: int
    log_start_offset: int


class Truncate(NamedTuple):
    """Drop all batches that end after `offset`: the leader does not have them. `high_watermark` is that before."""

    partition: Partition
    offset: int
    log_end_offset: int
    high_watermark: int


class RestartLog(NamedTuple):
    """Drop all records and go on, empty, at `offset`, where the leader's log begins."""

    partition: Partition
    offset: int
    log_end_offset: int


LogEffect: TypeAlias = AppendRecords | Truncate | RestartLog


class Fetched(NamedTuple):
    """The leader's response had records, or a higher high watermark."""

    partition: Partition
    size_bytes: int
    high_watermark_rose: bool


class Truncated(NamedTuple):
    """The log differed from the leader's, and what the leader does not have is gone."""

    partition: Partition
    end_offset_before: int
    high_watermark_before: int

    @property
    def lost_committed(self) -> bool:
        """Whether consumers may have seen what went. Only an unclean election, or a leader that lost its tail, does;
        and in a compacted log a leader that does not know the epoch of records which later ones have replaced."""
        return self.partition.log.log_end_offset < self.high_watermark_before


class Restarted(NamedTuple):
    """The leader has deleted all that this follower has: the log goes on, empty, at the leader's start."""

    partition: Partition
    end_offset_before: int


class BackedOff(NamedTuple):
    """Nothing is fetched for the partition until `until_ms`."""

    partition: Partition
    error: ErrorCode
    why: str
    until_ms: int


class Fenced(NamedTuple):
    """The leader is in a later term. Nothing is fetched until metadata brings it here too."""

    partition: Partition


class Failed(NamedTuple):
    """The disk refuses. Nothing is fetched until the partition is added again."""

    partition: Partition
    error: Exception


Fact: TypeAlias = Fetched | Truncated | Restarted | BackedOff | Fenced | Failed
Effect: TypeAlias = LogEffect | Fact

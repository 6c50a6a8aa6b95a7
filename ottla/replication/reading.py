"""Reading: which replica answers a reader, and which offsets it may see there."""

from ottla.protocol.errors import ErrorCode, NotLeaderOrFollower, OffsetOutOfRange, error_for
from ottla.replication.partition_base import NO_LEADER, PartitionBase
from ottla.storage.log import ReadResult

READ_COMMITTED = 1


class Reading(PartitionBase):
    """The part of a partition that consumers read."""

    __slots__ = ()

    def check_reader(self, current_leader_epoch: int, *, follower_will_do: bool) -> None:
        """Whether a consumer may read here: from the leader or, if it knows of that, from any replica (KIP-392).

        A replica that knows no leader may be far behind, and nobody would tell."""
        self.check_epoch(current_leader_epoch)
        if not self.is_leader and (not follower_will_do or self.leader_id == NO_LEADER):
            raise NotLeaderOrFollower(f"{self.topic}-{self.index} is led by broker {self.leader_id}")

    @property
    def last_stable_offset(self) -> int:
        """The high watermark: this broker has no transactions that could hold it back."""
        return self.high_watermark

    def upper_bound(self, isolation_level: int) -> int:
        """The first offset a consumer does not see yet (§15.3.2)."""
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.high_watermark

    def check_readable(self, offset: int) -> None:
        if not self.log.log_start_offset <= offset <= self.log.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.topic}-{self.index}, which has {self.log.log_start_offset}"
                f" to {self.log.log_end_offset}"
            )

    def read(self, offset: int, max_bytes: int, *, isolation_level: int, at_least_one_batch: bool) -> ReadResult:
        """Whole batches from the one that holds `offset`. Raises `WouldBlock` when they must come from the disk."""
        return self.log.read(
            offset, max_bytes, upper_bound=self.upper_bound(isolation_level), min_one_batch=at_least_one_batch
        )

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        """Where the log of a reader parts from this one, if it believes its last epoch to reach further (§14.5.1)."""
        log = self.log
        if last_fetched_epoch < 0 or (
            # Of its own latest epoch the log has everything: by far the most fetches need no more than this.
            last_fetched_epoch == log.epochs.latest_epoch and log.log_start_offset <= fetch_offset <= log.log_end_offset
        ):
            return None
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if end_offset < 0:
            raise OffsetOutOfRange(f"leader epoch {last_fetched_epoch} is not known here")
        if fetch_offset < self.log.log_start_offset:
            raise OffsetOutOfRange(f"offset {fetch_offset} is below the log start {self.log.log_start_offset}")
        return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < fetch_offset else None

    def check_end_offset_is_known(self) -> None:
        """§15.4.3: a new leader that has not caught up with its own term would answer an end that goes backward."""
        if self.high_watermark < self.leader_epoch_start:
            raise error_for(ErrorCode.OFFSET_NOT_AVAILABLE, "the high watermark of this term is not known yet")

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as in §14.3.3."""
        return self.log.end_offset_for_epoch(leader_epoch)

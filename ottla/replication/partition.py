"""One partition of which this broker has a replica: who leads it, how far it is replicated, what a reader may see.

    log start offset ≤ last stable offset ≤ high watermark ≤ log end offset

Records below the high watermark are on every replica that counts (§14.6); consumers read below it. A leader counts
itself and the members of the maximal ISR: the ISR as committed, and replicas that are about to join it. With a single
replica that is the leader alone, and the high watermark follows the end of the log as soon as appends are written.
"""

from collections.abc import Sequence

from ottla.protocol.errors import (
    ErrorCode,
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    error_for,
)
from ottla.storage.log import AppendInfo, Log, Origin, ReadResult

ACKS_ALL = -1
NO_EPOCH = -1

READ_COMMITTED = 1


class Partition:
    __slots__ = (
        "high_watermark",
        "index",
        "isr",
        "leader_epoch",
        "leader_epoch_start",
        "leader_id",
        "local_id",
        "log",
        "partition_epoch",
        "replicas",
        "topic",
        "topic_id",
    )

    def __init__(
        self, topic: str, index: int, topic_id: bytes, log: Log, *, local_id: int, high_watermark: int = 0
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.local_id = local_id
        self.leader_id = -1
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        # Where the log ended when this broker became leader in the current term.
        self.leader_epoch_start = 0
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index}, leader={self.leader_id}, epoch={self.leader_epoch})"

    # Leadership.

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.local_id

    def take_state(
        self, *, leader: int, leader_epoch: int, partition_epoch: int, replicas: Sequence[int], isr: Sequence[int]
    ) -> None:
        """The state that the controller has committed. One that is older than what is known is ignored (§14.2.1)."""
        if partition_epoch < self.partition_epoch:
            return
        begins_term = leader_epoch > self.leader_epoch
        self.leader_id = leader
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = tuple(replicas)
        self.isr = tuple(isr)
        if self.is_leader and begins_term:
            self.log.maybe_assign_leader_epoch(leader_epoch)
            self.leader_epoch_start = self.log.log_end_offset
        if self.is_leader:
            self.maybe_raise_high_watermark()

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raises what a request for the leader gets where it is mistaken about who that is (§15.1)."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise FencedLeaderEpoch(f"leader epoch {current_leader_epoch} is over, this is {self.leader_epoch}")
            raise UnknownLeaderEpoch(f"leader epoch {current_leader_epoch} is not known here, only {self.leader_epoch}")
        if not self.is_leader:
            raise NotLeaderOrFollower(f"{self.topic}-{self.index} is led by broker {self.leader_id}")

    # Writing.

    @property
    def min_isr(self) -> int:
        """§14.6.2: `min.insync.replicas` cannot ask for more replicas than there are."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    def append(
        self,
        records: memoryview,
        *,
        acks: int,
        wall_ms: int,
        origin: Origin = Origin.CLIENT,
        zstd_allowed: bool = True,
    ) -> AppendInfo:
        """Queues a batch behind the log's end; it is visible when the log has written it."""
        if not self.is_leader:
            raise NotLeaderOrFollower(f"{self.topic}-{self.index} is led by broker {self.leader_id}")
        in_sync = len(self.isr)
        if acks == ACKS_ALL and in_sync < self.log.config.min_insync_replicas and in_sync < self.min_isr:
            raise NotEnoughReplicas(
                f"{len(self.isr)} replicas in sync, {self.min_isr} are needed (min.insync.replicas)"
            )
        return self.log.append_as_leader(
            records, leader_epoch=self.leader_epoch, now_wall_ms=wall_ms, origin=origin, zstd_allowed=zstd_allowed
        )

    def maybe_raise_high_watermark(self) -> bool:
        """§14.6.1; returns whether it rose."""
        log_end_offset = self.log.log_end_offset
        if log_end_offset <= self.high_watermark:
            return False
        self.high_watermark = log_end_offset
        return True

    # Reading.

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

    def check_end_offset_is_known(self) -> None:
        """§15.4.3: a new leader that has not caught up with its own term would answer an end that goes backward."""
        if self.high_watermark < self.leader_epoch_start:
            raise error_for(ErrorCode.OFFSET_NOT_AVAILABLE, "the high watermark of this term is not known yet")

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as in §14.3.3."""
        return self.log.end_offset_for_epoch(leader_epoch)

"""Leading, as producers see it: which records are taken, when they are acknowledged, up to where they are committed.

How far the followers are, and whom the high watermark waits for, is known to the term's `Leadership`.
"""

from ottla.protocol.errors import ErrorCode, NotEnoughReplicas, NotLeaderOrFollower
from ottla.replication.partition_base import PartitionBase
from ottla.storage.log import AppendInfo, Origin

ACKS_ALL = -1


class Leading(PartitionBase):
    """The part of a partition that takes records, and moves the high watermark over them."""

    __slots__ = ()

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

    def acknowledgement(self, last_offset: int, leader_epoch: int) -> ErrorCode | None:
        """The answer to an acks=all append of `leader_epoch` that ends with `last_offset`; None while it waits.

        §15.2.3. An error here means that nobody knows whether the records will survive."""
        leadership = self.leadership
        if leadership is None or leader_epoch != self.leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.high_watermark <= last_offset:
            return None
        if len(leadership.isr_state.maximal) < self.min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def maybe_raise_high_watermark(self, now_ms: int) -> bool:
        """§14.6.1; returns whether it rose. To be called after appends are written."""
        candidate = self.log.log_end_offset
        if candidate <= self.high_watermark:
            return False
        leadership = self.leadership
        if leadership is None:
            return False
        if leadership.followers:
            # With members in the ELR, the ISR was too small by the rules of whoever wrote the state, whatever `min_isr`
            # says here (docs/decisions/0009).
            if self.elr or len(self.isr) < self.min_isr:
                return False
            candidate = leadership.high_watermark_candidate(candidate, now_ms)
            if candidate <= self.high_watermark:
                return False
        self.high_watermark = candidate
        if self.follower_sessions:
            self.stir_followers()
        return True

    def written(self, now_ms: int) -> bool:
        """Appends are in the log now; returns whether the high watermark rose by that."""
        if self.follower_sessions:
            self.stir_followers()
        return self.maybe_raise_high_watermark(now_ms)

"""What all parts of a partition share: its replicas and their leader as committed, its log, its high watermark."""

from typing import TYPE_CHECKING

from ottla.protocol.errors import FencedLeaderEpoch, NotLeaderOrFollower, UnknownLeaderEpoch
from ottla.replication.leadership import Leadership, ReplicationRules
from ottla.storage.log import Log

if TYPE_CHECKING:
    from ottla.replication.fetch_session import FetchTarget
    from ottla.replication.follower_session import FollowerSession

NO_EPOCH = -1
NO_LEADER = -1

_ALONE = ReplicationRules()


class PartitionBase:
    """The state of one partition, and who may ask what of it.

    The parts are mixed into one object, so that a produced batch or a fetch costs no call from one to the other."""

    __slots__ = (
        "_rules",
        "elr",
        "follower_sessions",
        "high_watermark",
        "index",
        "isr",
        "leader_epoch",
        "leader_epoch_start",
        "leader_id",
        "leadership",
        "local_id",
        "log",
        "partition_epoch",
        "replicas",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        log: Log,
        *,
        local_id: int,
        high_watermark: int = 0,
        rules: ReplicationRules = _ALONE,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.local_id = local_id
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        # Where the log ended when this broker became leader in the current term.
        self.leader_epoch_start = 0
        self.replicas: tuple[int, ...] = ()
        # As committed.
        self.isr: tuple[int, ...] = ()
        # The eligible leader replicas, as committed.
        self.elr: tuple[int, ...] = ()
        # Where followers fetch the partition, and as which target of theirs.
        self.follower_sessions: dict[FollowerSession, FetchTarget] = {}
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        # Invariant: there is one exactly while `leader_id` is `local_id`.
        self.leadership: Leadership | None = None
        self._rules = rules

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index}, leader={self.leader_id}, epoch={self.leader_epoch})"

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.local_id

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raises what a request for the leader gets where it is mistaken about who that is (§15.1)."""
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise NotLeaderOrFollower(f"{self.topic}-{self.index} is led by broker {self.leader_id}")

    def check_epoch(self, current_leader_epoch: int) -> None:
        """For what a follower may answer too (§15.1.3): is the caller's leader epoch, if it has one, this one?"""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise FencedLeaderEpoch(f"leader epoch {current_leader_epoch} is over, this is {self.leader_epoch}")
            raise UnknownLeaderEpoch(f"leader epoch {current_leader_epoch} is not known here, only {self.leader_epoch}")

    def stir_followers(self) -> None:
        """Something is different from what followers may have been told: their next fetch looks at the partition."""
        for session, target in self.follower_sessions.items():
            session.due[target.key] = target

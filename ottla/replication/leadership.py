"""One term of a leader: how far its followers are, who is in sync, and up to where records are safe.

The high watermark is the smallest log end offset among the leader itself, the maximal ISR, and replicas that have
caught up and are about to be asked for (§14.6.1). It stands still while fewer replicas are in sync than
`min.insync.replicas` asks for, so that a replica that leaves the ISR then still has everything that was acknowledged
(KIP-966, §19.4.3).

Nothing here touches a log: offsets and the time are arguments.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ottla.protocol.errors import NotLeaderOrFollower
from ottla.replication.isr import CommittedIsr, IsrChange, IsrMember, IsrState, PendingExpandIsr, PendingShrinkIsr
from ottla.replication.replica_progress import UNKNOWN_BROKER_EPOCH, Contact, ReplicaProgress
from ottla.replication.replica_reads import FollowerFetch

REPLICA_LAG_MS_MAX = 30_000


class Registrations(Protocol):
    """What the cluster knows of its brokers at this moment."""

    def epoch_of(self, broker_id: int) -> int:
        """Of its current registration; -1 if it has none."""
        ...

    def may_join_isr(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether it is registered under this epoch (or any, for -1), not fenced and not shutting down."""
        ...


class AnyRegistration:
    """For a broker that is alone."""

    def epoch_of(self, broker_id: int) -> int:  # noqa: ARG002 - the protocol's.
        return UNKNOWN_BROKER_EPOCH

    def may_join_isr(self, broker_id: int, broker_epoch: int) -> bool:  # noqa: ARG002 - the protocol's.
        return True


_ANY_REGISTRATION = AnyRegistration()


class ReplicationRules(NamedTuple):
    registrations: Registrations = _ANY_REGISTRATION
    lag_ms_max: int = REPLICA_LAG_MS_MAX
    """`replica.lag.time.max.ms`"""


class FetchNoted(NamedTuple):
    high_watermark_rose: bool
    isr_change: IsrChange | None
    """To be sent to the controller."""


@dataclass(frozen=True, slots=True)
class Term:
    """Whose term it is, of what, and where the log stood when it began."""

    topic: str
    index: int
    topic_id: bytes
    local_id: int
    leader_epoch: int
    start_offset: int


class Leadership:
    __slots__ = ("_rules", "followers", "isr_state", "partition_epoch", "term")

    def __init__(
        self,
        term: Term,
        rules: ReplicationRules,
        *,
        partition_epoch: int,
        replicas: Iterable[int],
        isr: tuple[int, ...],
        now_ms: int,
    ) -> None:
        self.term = term
        self._rules = rules
        self.partition_epoch = partition_epoch
        self.isr_state: IsrState = CommittedIsr(isr)
        # Members get the whole lag limit to show up; of others nothing is known, and nothing waits for them.
        self.followers: dict[int, ReplicaProgress] = {
            replica: ReplicaProgress(caught_up_ms=now_ms) if replica in isr else ReplicaProgress()
            for replica in replicas
            if replica != term.local_id
        }

    def adopt(self, *, partition_epoch: int, replicas: Iterable[int], isr: tuple[int, ...]) -> None:
        """The controller has committed another state of the term; a change of the ISR in flight is void (§14.7.4)."""
        left = [replica for replica in self.isr_state.isr if replica not in isr]
        self.partition_epoch = partition_epoch
        self.isr_state = CommittedIsr(isr)
        others = [replica for replica in replicas if replica != self.term.local_id]
        self.followers = {replica: self.followers.get(replica) or ReplicaProgress() for replica in others}
        for replica in left:
            # However far it was: nothing waits for it any more before it has caught up again.
            if replica in self.followers:
                self.followers[replica].fall_behind()

    # The high watermark.

    def high_watermark_candidate(self, log_end_offset: int, now_ms: int) -> int:
        candidate = log_end_offset
        for replica, progress in self.followers.items():
            if progress.log_end_offset < candidate and self.is_waited_for(replica, progress, log_end_offset, now_ms):
                candidate = progress.log_end_offset
        return candidate

    def is_waited_for(self, replica: int, progress: ReplicaProgress, log_end_offset: int, now_ms: int) -> bool:
        return replica in self.isr_state.maximal or (
            progress.is_caught_up(log_end_offset, now_ms, self._rules.lag_ms_max) and self._is_eligible(replica)
        )

    def _is_eligible(self, replica: int) -> bool:
        return self._rules.registrations.may_join_isr(replica, self.followers[replica].broker_epoch)

    # Fetches of followers.

    def knows(self, replica: int, broker_epoch: int) -> bool:
        """Whether the broker has a replica, and has not fetched under a later registration than this one."""
        progress = self.followers.get(replica)
        return progress is not None and not UNKNOWN_BROKER_EPOCH != broker_epoch < progress.broker_epoch

    def note_fetch(
        self, fetch: FollowerFetch, *, leader_end_offset: int, now_ms: int, contact: Contact | None = None
    ) -> None:
        """Raises NotLeaderOrFollower for a broker that has registered again since, or has no replica any more."""
        replica, broker_epoch = fetch.replica_id, fetch.broker_epoch
        progress = self.followers.get(replica)
        if progress is None:
            raise NotLeaderOrFollower(f"broker {replica} has no replica of {self.term.topic}-{self.term.index}")
        if UNKNOWN_BROKER_EPOCH != broker_epoch < progress.broker_epoch:
            raise NotLeaderOrFollower(
                f"broker {replica} fetches under broker epoch {broker_epoch}, it is known by {progress.broker_epoch}"
            )
        progress.note_fetch(
            fetch.fetch_offset,
            fetch.log_start_offset,
            broker_epoch,
            leader_end_offset=leader_end_offset,
            now_ms=now_ms,
            contact=contact,
        )

    # Changes of the ISR.

    def maybe_expand(self, replica: int, high_watermark: int, log_start_offset: int) -> IsrChange | None:
        """§14.7.2; call it after each fetch of `replica`. The offsets are the leader's."""
        state = self.isr_state
        if state.change is not None or replica in state.isr:
            return None
        progress = self.followers[replica]
        if progress.log_start_offset < log_start_offset:
            # What it has below may diverge, and the leader does not know any more where.
            return None
        end_offset = progress.log_end_offset
        if end_offset < high_watermark or end_offset < self.term.start_offset or not self._is_eligible(replica):
            return None
        change = self._change_to((*state.isr, replica))
        self.isr_state = PendingExpandIsr(state.committed, replica, change)
        return change

    def maybe_shrink(self, log_end_offset: int, now_ms: int) -> IsrChange | None:
        """§14.7.1; call it every half of the lag limit."""
        state = self.isr_state
        if state.change is not None:
            return None
        leaving = tuple(
            replica
            for replica in state.isr
            if replica in self.followers
            and not self.followers[replica].is_caught_up(log_end_offset, now_ms, self._rules.lag_ms_max)
        )
        if not leaving:
            return None
        change = self._change_to(tuple(replica for replica in state.isr if replica not in leaving))
        self.isr_state = PendingShrinkIsr(state.committed, leaving, change)
        return change

    def _change_to(self, isr: tuple[int, ...]) -> IsrChange:
        term = self.term
        return IsrChange(
            term.topic,
            term.index,
            term.topic_id,
            term.leader_epoch,
            self.partition_epoch,
            tuple(IsrMember(replica, self._broker_epoch_of(replica)) for replica in isr),
        )

    def _broker_epoch_of(self, replica: int) -> int:
        if replica == self.term.local_id:
            return self._rules.registrations.epoch_of(replica)
        progress = self.followers.get(replica)
        return UNKNOWN_BROKER_EPOCH if progress is None else progress.broker_epoch

    def give_up_change(self) -> None:
        """The change under way was refused for good."""
        self.isr_state = self.isr_state.committed

    # Readers.

    def nearest_replica(self, offset: int, rack: str, rack_of: Callable[[int], str | None]) -> int:
        """The replica a consumer in `rack` reads `offset` from (KIP-392): in that rack, in sync, with the most records.

        `rack_of` gives None for a broker that is not alive. The leader's own id if none is nearer.
        """
        if rack_of(self.term.local_id) == rack:
            return self.term.local_id
        in_rack = [
            (progress.log_end_offset, progress.last_caught_up_ms, -replica)
            for replica, progress in self.followers.items()
            if replica in self.isr_state.isr
            and rack_of(replica) == rack
            and progress.log_start_offset <= offset <= progress.log_end_offset
        ]
        return -max(in_rack)[2] if in_rack else self.term.local_id

    def lowest_log_start_offset(self, own: int, is_alive: Callable[[int], bool]) -> int:
        """Below it, records are deleted on every replica that is alive (§15.6.1); -1 while that of one is unknown."""
        starts = [progress.log_start_offset for replica, progress in self.followers.items() if is_alive(replica)]
        return min([own, *starts])

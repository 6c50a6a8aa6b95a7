"""One partition of which this broker has a replica: who leads it, how far it is replicated, what a reader may see.

    log start offset ≤ last stable offset ≤ high watermark ≤ log end offset

Records below the high watermark are on every replica that counts (§14.6); consumers read below it. While this broker
leads, `leadership` knows how far the followers are. With a single replica that is the leader alone, and the high
watermark follows the end of the log as soon as appends are written. A follower knows it from its leader's answers.

    PartitionBase        the state, and who leads
    ├─ Leading           records of producers: append, acknowledge, raise the high watermark
    ├─ Reading           consumers: up to which offset they see, and where logs diverge
    ├─ ServingFollowers  fetches of followers: answer them, note how far they are; with Leading and Reading
    └─ Following         a follower's own log: append, truncate, take over the leader's high watermark

Here they are put together, and here is what makes a leader or a follower of a replica. All changes are committed by the
controller first and come in through `take_state`, or as the answer to a change of the ISR that this leader asked for.
No append is queued while a term begins: the shell writes what is queued before.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import ClassVar

from ottla.protocol.errors import ErrorCode
from ottla.replication.following import Following
from ottla.replication.isr import IsrChange, IsrOutcome, outcome_of
from ottla.replication.leadership import Leadership, Term
from ottla.replication.partition_base import NO_EPOCH, NO_LEADER
from ottla.replication.serving_followers import ServingFollowers


class Taken(Enum):
    """What a committed state means for this replica."""

    NOTHING = auto()
    """It is not news."""
    UPDATED = auto()
    """The term goes on, with other replicas or another ISR."""
    LEADS = auto()
    """A term of this broker begins: stop fetching."""
    FOLLOWS = auto()
    """A term of another leader begins, or of none: send away who waits for this leader, fetch from the new one."""


class Partition(ServingFollowers, Following):
    """One replica of a partition, whoever leads it."""

    __slots__ = ()

    leadership_type: ClassVar[type[Leadership]] = Leadership

    def take_state(
        self,
        *,
        leader: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        elr: Sequence[int] = (),
        now_ms: int,
    ) -> Taken:
        """The state that the controller has committed. One not newer than what is known is ignored (§14.2.1)."""
        if partition_epoch <= self.partition_epoch:
            return Taken.NOTHING
        begins_term = leader_epoch > self.leader_epoch or leader != self.leader_id
        if begins_term:
            assert not self.log.has_pending_writes, "what is queued was accepted in the old term, and is written first"
        if begins_term and leader == self.local_id:
            self.log.maybe_assign_leader_epoch(leader_epoch)
            self.leader_epoch_start = self.log.log_end_offset
        self.leader_id = leader
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = tuple(replicas)
        self.isr = tuple(isr)
        self.elr = tuple(elr)
        self.stir_followers()
        if not begins_term:
            self._adopt(now_ms)
            return Taken.UPDATED
        if not self.is_leader:
            self.leadership = None
            return Taken.FOLLOWS
        self._begin_leading(now_ms)
        return Taken.LEADS

    def _begin_leading(self, now_ms: int) -> None:
        term = Term(
            self.topic,
            self.index,
            self.topic_id,
            self.local_id,
            self.leader_epoch,
            start_offset=self.leader_epoch_start,
        )
        self.leadership = self.leadership_type(
            term,
            self._rules,
            partition_epoch=self.partition_epoch,
            replicas=self.replicas,
            isr=self.isr,
            now_ms=now_ms,
        )
        self.maybe_raise_high_watermark(now_ms)

    def _adopt(self, now_ms: int) -> None:
        if self.leadership is not None:
            self.leadership.adopt(partition_epoch=self.partition_epoch, replicas=self.replicas, isr=self.isr)
            self.maybe_raise_high_watermark(now_ms)

    def resign(self) -> None:
        """The broker stops, or gives the partition away: nobody is led or served from here on."""
        self.leader_id = NO_LEADER
        self.leadership = None
        self.stir_followers()

    def forget_state(self) -> None:
        """A committed state could not be applied in full: until it is, when it counts as new, nobody is served."""
        self.resign()
        self.partition_epoch = NO_EPOCH

    # The in-sync replicas.

    def maybe_shrink_isr(self, now_ms: int) -> IsrChange | None:
        """To be called every half of `replica.lag.time.max.ms`; gives what to send to the controller."""
        return None if self.leadership is None else self.leadership.maybe_shrink(self.log.log_end_offset, now_ms)

    def isr_change_answered(
        self,
        change: IsrChange,
        error: ErrorCode,
        *,
        partition_epoch: int = -1,
        isr: Sequence[int] = (),
        elr: Sequence[int] = (),
        now_ms: int,
    ) -> IsrOutcome:
        """The controller's answer (§14.7.4); on success with the partition epoch, ISR and ELR that were committed."""
        leadership = self.leadership
        if leadership is None or leadership.isr_state.change is not change:
            return IsrOutcome.OVERTAKEN
        outcome = outcome_of(error)
        if outcome is IsrOutcome.RETURNED:
            leadership.give_up_change()
            self.maybe_raise_high_watermark(now_ms)
        elif outcome is IsrOutcome.ADOPTED:
            self.partition_epoch = partition_epoch
            self.isr = tuple(isr)
            self.elr = tuple(elr)
            self.stir_followers()
            self._adopt(now_ms)
        return outcome

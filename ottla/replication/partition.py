"""One partition of which this broker has a replica: who leads it, how far it is replicated, what a reader may see.

    log start offset ≤ last stable offset ≤ high watermark ≤ log end offset

Records below the high watermark are on every replica that counts (§14.6); consumers read below it. A partition is its
state as the controller has committed it, its log, and three parts:

    leadership  while this broker leads: how far the followers are, which of them are in sync. A new one for each term
    reads       whether the log has what a reader asks for, and where another log parts from it
    sessions    the followers' fetch sessions that have to learn of what changes here

With a single replica the high watermark follows the end of the log as soon as appends are written. A follower takes it
from its leader's responses. All changes of state are committed by the controller first and come in through
`apply_state`, or as the answer to a change of the ISR that this leader asked for.

Nothing here reads or writes a file: the shell does that with `log`, and reports what it has done. No append is queued
while a term begins: the shell writes what is queued before.

The offsets are plain fields, and what every batch and every fetch calls is a method of the partition itself:
a property costs a call at each of the many places where the data path looks at the high watermark.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import ClassVar

from ottla.protocol.errors import (
    ErrorCode,
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    error_for,
)
from ottla.replication.isr import IsrChange, IsrOutcome, outcome_of
from ottla.replication.leadership import FetchNoted, Leadership, ReplicationRules, Term
from ottla.replication.replica_progress import Contact, WatchingSessions
from ottla.replication.replica_reads import FollowerFetch, ReplicaReads
from ottla.storage.log import AppendInfo, Log, Origin, VerificationGuard

ACKS_ALL = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
NO_EPOCH = -1
NO_LEADER = -1

_ALONE = ReplicationRules()


class StateChange(Enum):
    """What a committed state means for this replica."""

    NONE = auto()
    """It is no newer than what is known."""
    UPDATED = auto()
    """The term goes on, with other replicas or another ISR."""
    BECAME_LEADER = auto()
    """A term of this broker begins: stop fetching."""
    BECAME_FOLLOWER = auto()
    """A term of another leader begins, or of none: end the requests that wait for this leader, fetch from the new."""


class TopicTraffic:
    """What has come and gone through the partitions of a topic on this broker, since it started."""

    __slots__ = ("bytes_in", "bytes_to_consumers", "bytes_to_followers", "records_in")

    def __init__(self) -> None:
        self.records_in = 0
        self.bytes_in = 0
        self.bytes_to_consumers = 0
        self.bytes_to_followers = 0

    @property
    def counts(self) -> tuple[int, int, int, int]:
        return self.records_in, self.bytes_in, self.bytes_to_consumers, self.bytes_to_followers

    def add(self, more: "TopicTraffic", less: tuple[int, int, int, int] = (0, 0, 0, 0)) -> None:
        """What has come and gone with `more`, without what is in `less`."""
        self.records_in += more.records_in - less[0]
        self.bytes_in += more.bytes_in - less[1]
        self.bytes_to_consumers += more.bytes_to_consumers - less[2]
        self.bytes_to_followers += more.bytes_to_followers - less[3]


class Partition:
    """One replica of a partition, whichever broker leads it."""

    leadership_type: ClassVar[type[Leadership]] = Leadership

    __slots__ = (
        "_rules",
        "elr",
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
        "reads",
        "replicas",
        "sessions",
        "topic",
        "topic_id",
        "traffic",
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
        traffic: TopicTraffic | None = None,
    ) -> None:
        """`traffic` is that of all partitions of the topic."""
        self.topic = topic
        self.traffic = traffic or TopicTraffic()
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.local_id = local_id
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        # Where the log ended when this broker became leader in the current term.
        self.leader_epoch_start = 0
        self.replicas: tuple[int, ...] = ()
        # As committed.
        self.isr: tuple[int, ...] = ()
        # The eligible leader replicas, as committed.
        self.elr: tuple[int, ...] = ()
        self.reads = ReplicaReads(topic, index, log)
        self.sessions = WatchingSessions()
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        # Invariant: there is one exactly while `leader_id` is `local_id`.
        self.leadership: Leadership | None = None
        self._rules = rules

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index}, leader={self.leader_id}, epoch={self.leader_epoch})"

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.local_id

    # The committed state.

    def apply_state(
        self,
        *,
        leader: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        elr: Sequence[int] = (),
        now_ms: int,
    ) -> StateChange:
        """The state that the controller has committed. One not newer than what is known is ignored (§14.2.1)."""
        if partition_epoch <= self.partition_epoch:
            return StateChange.NONE
        begins_term = leader_epoch > self.leader_epoch or leader != self.leader_id
        if begins_term:
            assert not self.log.has_pending_writes, "what is queued was accepted in the old term, and is written first"
        if begins_term:
            self.log.drop_guards()
        if begins_term and leader == self.local_id:
            self.log.maybe_assign_leader_epoch(leader_epoch)
            self.leader_epoch_start = self.log.log_end_offset
        self.leader_id = leader
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = tuple(replicas)
        self.isr = tuple(isr)
        self.elr = tuple(elr)
        self.sessions.mark_dirty()
        if not begins_term:
            self._adopt(now_ms)
            return StateChange.UPDATED
        if not self.is_leader:
            self.leadership = None
            return StateChange.BECAME_FOLLOWER
        self._begin_leading(now_ms)
        return StateChange.BECAME_LEADER

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
        """The broker stops, or gives the partition away: it leads and serves no replica from here on."""
        self.leader_id = NO_LEADER
        self.leadership = None
        self.sessions.mark_dirty()

    def forget_state(self) -> None:
        """A committed state could not be applied in full: until it is, when it counts as new, no request is served."""
        self.resign()
        self.partition_epoch = NO_EPOCH

    # Records of producers.

    @property
    def min_isr(self) -> int:
        """§14.6.2: `min.insync.replicas` cannot ask for more replicas than there are."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    def append(
        self,
        records: memoryview,
        acks: int,
        wall_ms: int,
        origin: Origin = Origin.CLIENT,
        zstd_allowed: bool = True,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Queues a batch behind the log's end; it is visible when the log has written it."""
        if self.leadership is None:
            raise NotLeaderOrFollower(f"{self.topic}-{self.index} is led by broker {self.leader_id}")
        # With all replicas in sync, no setting can ask for more.
        if acks == ACKS_ALL and len(self.isr) < len(self.replicas) and len(self.isr) < self.min_isr:
            raise NotEnoughReplicas(
                f"{len(self.isr)} replicas in sync, {self.min_isr} are needed (min.insync.replicas)"
            )
        return self.log.append_as_leader(records, self.leader_epoch, wall_ms, origin, zstd_allowed, guard)

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_wall_ms: int, *, raises_epoch: bool
    ) -> VerificationGuard | None:
        """What the first batch of a transaction has to present when its coordinator has answered; None for a
        transaction that is open here. Raises NotLeaderOrFollower, InvalidProducerEpoch, KafkaStorageError (§40.2.1)."""
        self.check_leader()
        return self.log.producers.begin_verification(
            producer_id, epoch, sequence, now_wall_ms, raises_epoch=raises_epoch
        )

    def acknowledgement(self, last_offset: int, leader_epoch: int) -> ErrorCode | None:
        """The answer to an acks=all append of `leader_epoch` that ends with `last_offset`; None while it waits.

        §15.2.3. An error here means that it is unknown whether the records will survive."""
        leadership = self.leadership
        if leadership is None or leader_epoch != self.leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.high_watermark <= last_offset:
            return None
        if len(leadership.isr_state.maximal) < self.min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def maybe_raise_high_watermark(self, now_ms: int) -> bool:
        """§14.6.1; returns whether it rose. To be called after appends are written, and after a sync that was due: what
        consumers see has outlasted a loss of power where `flush.messages` says so."""
        log = self.log
        candidate = log.log_end_offset
        if log.waits_for_sync and log.needs_flush:
            candidate = log.flushed_offset
        if candidate <= self.high_watermark:
            return False
        leadership = self.leadership
        if leadership is None:
            return False
        if leadership.followers:
            # With members in the ELR, the ISR was too small by the rules of the broker that wrote the state, whatever
            # `min_isr` says here (docs/decisions/0009).
            if self.elr or len(self.isr) < self.min_isr:
                return False
            candidate = leadership.high_watermark_candidate(candidate, now_ms)
            if candidate <= self.high_watermark:
                return False
        self.high_watermark = candidate
        if self.sessions.targets:
            self.sessions.mark_dirty()
        return True

    def written(self, now_ms: int) -> bool:
        """Appends are in the log now; returns whether the high watermark rose by that."""
        if self.sessions.targets:
            self.sessions.mark_dirty()
        return self.maybe_raise_high_watermark(now_ms)

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
            self.sessions.mark_dirty()
            self._adopt(now_ms)
        return outcome

    # Followers of this leader.

    @property
    def has_followers(self) -> bool:
        """Whether this leader has any to wait for."""
        return self.leadership is not None and bool(self.leadership.followers)

    def is_in_sync(self, replica_id: int) -> bool:
        return self.leadership is not None and replica_id in self.leadership.isr_state.isr

    def follower_left(self, replica_id: int, contact: Contact) -> None:
        """This session of it does without the partition from now on; it may have another one."""
        progress = None if self.leadership is None else self.leadership.followers.get(replica_id)
        if progress is not None and progress.is_seen_by(contact):
            progress.leave_contact()

    def check_follower(self, replica_id: int, current_leader_epoch: int) -> None:
        """Whether broker `replica_id` may fetch as a follower: only from the leader, only with a replica (§15.1.4)."""
        leadership = self.leadership
        if leadership is not None and current_leader_epoch == self.leader_epoch and replica_id in leadership.followers:
            return
        self.check_leader(max(current_leader_epoch, NO_EPOCH))
        if replica_id not in self.replicas or replica_id == self.local_id:
            what = f"broker {replica_id} has no replica of {self.topic}-{self.index}"
            raise UnknownLeaderEpoch(what) if current_leader_epoch >= 0 else NotLeaderOrFollower(what)

    def has_nothing_for(self, fetch: FollowerFetch) -> bool:
        """Whether the follower is where the log ends, and a read for it would give neither records nor an error."""
        leadership, log = self.leadership, self.log
        return (
            leadership is not None
            and fetch.fetch_offset == log.log_end_offset
            and fetch.current_leader_epoch == self.leader_epoch
            and fetch.last_fetched_epoch == log.epochs.latest_epoch
            and leadership.knows(fetch.replica_id, fetch.broker_epoch)
        )

    def note_follower_fetch(
        self, fetch: FollowerFetch, leader_end_offset: int, now_ms: int, contact: Contact | None = None
    ) -> FetchNoted:
        """The follower has all records below its fetch offset.

        Call it once for a request, at its first read, and only if that succeeded without divergence (§14.1.4).
        `leader_end_offset` is the log end as it was before that read, `contact` that of the session. Raises what
        `check_follower` does, and NotLeaderOrFollower for a broker epoch that is over."""
        self.check_follower(fetch.replica_id, fetch.current_leader_epoch)
        leadership = self.leadership
        assert leadership is not None, "a leader has a leadership"
        leadership.note_fetch(fetch, leader_end_offset=leader_end_offset, now_ms=now_ms, contact=contact)
        change = leadership.maybe_expand(fetch.replica_id, self.high_watermark, self.log.log_start_offset)
        return FetchNoted(self.maybe_raise_high_watermark(now_ms), change)

    # What a follower learns from its leader.

    def maybe_update_high_watermark(self, leader_high_watermark: int, leader_log_start_offset: int) -> bool:
        """What the leader's response says, after its records are in the log; returns whether it rose (§14.4.4).

        It does not fall with a new leader's, which may not know yet what its predecessor had committed."""
        log, before = self.log, self.high_watermark
        self.high_watermark = max(before, min(leader_high_watermark, log.log_end_offset), log.log_start_offset)
        start = min(leader_log_start_offset, self.high_watermark)
        if start > log.log_start_offset:
            log.delete_records_before(start)
        return self.high_watermark > before

    def log_truncated(self) -> None:
        """Records were dropped from the end of the log, or all of them: it may go on at another offset."""
        log = self.log
        self.high_watermark = max(min(self.high_watermark, log.log_end_offset), log.log_start_offset)

    # Which requests it may answer.

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raises what a request gets that takes this broker for the leader, or is of another term (§15.1)."""
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise NotLeaderOrFollower(f"{self.topic}-{self.index} is led by broker {self.leader_id}")

    def check_epoch(self, current_leader_epoch: int) -> None:
        """For what a follower may answer too (§15.1.3): the caller's leader epoch, if it has one, must be current."""
        if current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                raise FencedLeaderEpoch(f"leader epoch {current_leader_epoch} is over, this is {self.leader_epoch}")
            raise UnknownLeaderEpoch(f"leader epoch {current_leader_epoch} is not known here, only {self.leader_epoch}")

    def check_reader(self, current_leader_epoch: int, *, follower_will_do: bool) -> None:
        """Whether a consumer may read here: from the leader or, if it knows of that, from any replica (KIP-392).

        A replica that knows no leader may be far behind, and cannot find out. In Fetch each negative leader epoch is
        none, as in Kafka; in other requests only -1 is."""
        if current_leader_epoch != self.leader_epoch and current_leader_epoch >= 0:
            self.check_epoch(current_leader_epoch)
        if self.leader_id != self.local_id and (not follower_will_do or self.leader_id == NO_LEADER):
            raise NotLeaderOrFollower(f"{self.topic}-{self.index} is led by broker {self.leader_id}")

    @property
    def last_stable_offset(self) -> int:
        """The high watermark, or where the first transaction begins that is not over (§42.1)."""
        high_watermark = self.high_watermark
        # Of every fetch this is asked.
        return self.log.last_stable_offset(high_watermark) if self.log.may_have_transactions else high_watermark

    def upper_bound(self, isolation_level: int) -> int:
        """The first offset a consumer does not see yet (§15.3.2)."""
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.high_watermark

    def check_end_offset_is_known(self) -> None:
        """§15.4.3: a new leader that has not caught up with its own term would answer an end that goes backward."""
        if self.high_watermark < self.leader_epoch_start:
            raise error_for(ErrorCode.OFFSET_NOT_AVAILABLE, "the high watermark of this term is not known yet")

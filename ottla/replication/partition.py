"""One partition of which this broker has a replica: who leads it, how far it is replicated, what a reader may see.

    log start offset ≤ last stable offset ≤ high watermark ≤ log end offset

Records below the high watermark are on every replica that counts (§14.6); consumers read below it. While this broker
leads, `leadership` knows how far the followers are. With a single replica that is the leader alone, and the high
watermark follows the end of the log as soon as appends are written. A follower knows it from its leader's answers.

All changes are committed by the controller first and come in through `take_state`, or as the answer to a change of the
ISR that this leader asked for. No append is queued while a term begins: the shell writes what is queued before.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ottla.protocol.errors import (
    ErrorCode,
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    error_for,
)
from ottla.replication.isr import IsrChange, IsrOutcome, outcome_of
from ottla.replication.leadership import Leadership, ReplicationRules, Term
from ottla.replication.progress import Contact
from ottla.replication.shared_reads import SharedReads
from ottla.storage.log import AppendInfo, Log, Origin, ReadResult

if TYPE_CHECKING:
    from ottla.replication.fetch_session import FetchTarget
    from ottla.replication.follower_session import FollowerSession

ACKS_ALL = -1
NO_EPOCH = -1
NO_LEADER = -1

READ_COMMITTED = 1

NOTHING = memoryview(b"")

_ALONE = ReplicationRules()


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


class FollowerFetch(NamedTuple):
    """What a follower's fetch request says of one partition."""

    replica_id: int
    broker_epoch: int
    fetch_offset: int
    log_start_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int


class FollowerRead(NamedTuple):
    records: memoryview | list[memoryview]
    diverging: tuple[int, int] | None
    """(epoch, end offset) where the follower's log parts from this one; then there are no records."""
    leader_end_offset: int
    """As it was before the records were read."""

    @property
    def size_bytes(self) -> int:
        records = self.records
        return sum(map(len, records)) if type(records) is list else len(records)


class FollowerNoted(NamedTuple):
    high_watermark_rose: bool
    isr_change: IsrChange | None
    """To be sent to the controller."""


class Partition:
    leadership_type: ClassVar[type[Leadership]] = Leadership

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

    # Leadership.

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.local_id

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

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raises what a request for the leader gets where it is mistaken about who that is (§15.1)."""
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise NotLeaderOrFollower(f"{self.topic}-{self.index} is led by broker {self.leader_id}")

    def check_reader(self, current_leader_epoch: int, *, follower_will_do: bool) -> None:
        """Whether a consumer may read here: from the leader or, if it knows of that, from any replica (KIP-392).

        A replica that knows no leader may be far behind, and nobody would tell."""
        self.check_epoch(current_leader_epoch)
        if not self.is_leader and (not follower_will_do or self.leader_id == NO_LEADER):
            raise NotLeaderOrFollower(f"{self.topic}-{self.index} is led by broker {self.leader_id}")

    def check_epoch(self, current_leader_epoch: int) -> None:
        """For what a follower may answer too (§15.1.3): is the caller's leader epoch, if it has one, this one?"""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise FencedLeaderEpoch(f"leader epoch {current_leader_epoch} is over, this is {self.leader_epoch}")
            raise UnknownLeaderEpoch(f"leader epoch {current_leader_epoch} is not known here, only {self.leader_epoch}")

    def check_follower(self, replica_id: int, current_leader_epoch: int) -> None:
        """Whether broker `replica_id` may fetch as a follower: only from the leader, only with a replica (§15.1.4)."""
        leadership = self.leadership
        if leadership is not None and current_leader_epoch == self.leader_epoch and replica_id in leadership.followers:
            return
        self.check_leader(current_leader_epoch)
        if replica_id not in self.replicas or replica_id == self.local_id:
            what = f"broker {replica_id} has no replica of {self.topic}-{self.index}"
            raise UnknownLeaderEpoch(what) if current_leader_epoch >= 0 else NotLeaderOrFollower(what)

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

    # Followers, as their leader sees them.

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

    def stir_followers(self) -> None:
        """Something is different from what followers may have been told: their next fetch looks at the partition."""
        for session, target in self.follower_sessions.items():
            session.due[target.key] = target

    def has_nothing_for(self, fetch: FollowerFetch) -> bool:
        """Whether the follower is where the log ends, and `read_for_follower` would find neither records nor fault."""
        leadership, log = self.leadership, self.log
        return (
            leadership is not None
            and fetch.fetch_offset == log.log_end_offset
            and fetch.current_leader_epoch == self.leader_epoch
            and fetch.last_fetched_epoch == log.epochs.latest_epoch
            and leadership.knows(fetch.replica_id, fetch.broker_epoch)
        )

    def read_for_follower(
        self, fetch: FollowerFetch, max_bytes: int, *, at_least_one_batch: bool, shared: SharedReads | None = None
    ) -> FollowerRead:
        """What a follower gets, up to the end of the log. Changes nothing: `note_follower_fetch` does. With `shared`,
        another follower that asks for the same gets the same.

        Raises KafkaError, and `WouldBlock` when the records must come from the disk."""
        self.check_follower(fetch.replica_id, fetch.current_leader_epoch)
        end_offset = self.log.log_end_offset
        diverging = self.diverging_epoch(fetch.last_fetched_epoch, fetch.fetch_offset)
        if diverging is not None:
            return FollowerRead(NOTHING, diverging, end_offset)
        if fetch.fetch_offset == end_offset:
            return FollowerRead(NOTHING, None, end_offset)
        self.check_readable(fetch.fetch_offset)
        if max_bytes <= 0 and not at_least_one_batch:
            return FollowerRead(NOTHING, None, end_offset)
        if shared is not None and at_least_one_batch:
            others_follow = len(self.replicas) > 2
            records = shared.read(self.log, fetch.fetch_offset, max_bytes, upper_bound=end_offset, keeps=others_follow)
            return FollowerRead(records, None, end_offset)
        result = self.log.read(fetch.fetch_offset, max_bytes, upper_bound=end_offset, min_one_batch=at_least_one_batch)
        return FollowerRead(result.records, None, end_offset)

    def note_follower_fetch(
        self, fetch: FollowerFetch, leader_end_offset: int, now_ms: int, contact: Contact | None = None
    ) -> FollowerNoted:
        """The follower has all records below its fetch offset.

        Call it once for a request, at its first read, and only if that succeeded without divergence (§14.1.4).
        `leader_end_offset` is the log end as it was before that read, `contact` that of the session. Raises what
        `check_follower` does, and NotLeaderOrFollower for a broker epoch that is over."""
        self.check_follower(fetch.replica_id, fetch.current_leader_epoch)
        leadership = self.leadership
        assert leadership is not None, "a leader has a leadership"
        leadership.note_fetch(
            fetch.replica_id,
            fetch.fetch_offset,
            fetch.log_start_offset,
            fetch.broker_epoch,
            leader_end_offset=leader_end_offset,
            now_ms=now_ms,
            contact=contact,
        )
        change = leadership.maybe_expand(fetch.replica_id, self.high_watermark)
        return FollowerNoted(self.maybe_raise_high_watermark(now_ms), change)

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

    # A follower's own log.

    def append_from_leader(self, records: memoryview, *, wall_ms: int) -> None:
        """Raises CorruptMessage, the log being unchanged then, or KafkaStorageError."""
        self.log.append_as_follower(records, now_wall_ms=wall_ms)
        self.log.write_pending(now_wall_ms=wall_ms)

    def follow(self, leader_high_watermark: int, leader_log_start_offset: int) -> bool:
        """Take over what the leader's answer said; returns whether the high watermark rose (§14.4.4).

        It does not fall with a new leader's, which may not know yet what its predecessor had committed."""
        log, before = self.log, self.high_watermark
        self.high_watermark = max(before, min(leader_high_watermark, log.log_end_offset), log.log_start_offset)
        start = min(leader_log_start_offset, self.high_watermark)
        if start > log.log_start_offset:
            log.delete_records_before(start)
        return self.high_watermark > before

    def truncate_to(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self.high_watermark = max(min(self.high_watermark, self.log.log_end_offset), self.log.log_start_offset)

    def restart_at(self, offset: int) -> None:
        """Drop all records; the leader's log begins above them."""
        self.log.truncate_fully_and_start_at(offset)
        # What is known of the records that went would be taken for knowledge about the leader's.
        self.log.epochs.clear()
        self.high_watermark = offset

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

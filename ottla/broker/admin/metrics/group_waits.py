"""What the rebalances of a group cost: how long members waited and for what, how long partitions had no owner.

It observes every fact of the group, with the time of the step that the fact is of. A member waits while its JoinGroup
or SyncGroup has no answer:

    for             until
    -------------   --------------------------------------------------------------------------------
    initial delay   the delay of a group that was empty is over (`group.initial.rebalance.delay.ms`)
    member          the other members have joined again
    deadline        the same, if they were removed since they had not when the time was over
    leader          the leader has handed in the assignment
    storing         the assignment is in the log

A partition has no owner from when its member is removed, or joins again without keeping it, until it is assigned again;
or longer, where the next generation leaves it out though the group goes on consuming its topic (a cooperative assignor
does so between two generations). What was assigned is known from the first generation that is completed here.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum

from ottla.coordinator.classic.states import GroupState
from ottla.coordinator.facts import (
    Cause,
    Fact,
    GenerationCompleted,
    JoinPhaseExtended,
    MemberAssigned,
    MemberJoined,
    MemberRejoined,
    MemberRemoved,
    MemberSynced,
    RebalanceStarted,
    SessionExpired,
    StateChanged,
    StaticMemberReplaced,
)
from ottla.protocol.consumer_protocol import PROTOCOL_TYPE, parse_assignment, parse_subscription
from ottla.protocol.primitives import DecodeError

Partitions = frozenset[tuple[str, int]]
NO_PARTITIONS: Partitions = frozenset()
_NO_TOPICS = (b"", bytes(4))


class WaitFor(StrEnum):
    INITIAL_DELAY = "initial delay"
    MEMBER = "member"
    DEADLINE = "deadline"
    LEADER = "leader"
    STORING = "storing"


class GroupWaits:
    def __init__(self, now_ms: int) -> None:
        self.waited_ms: Counter[str] = Counter()
        """Members times milliseconds, by what they waited for."""
        self._joined: set[str] = set()
        self._synced: set[str] = set()
        self._wait_for: WaitFor | None = None
        self._waits_since_ms = now_ms
        self._ownership = _Ownership(now_ms)

    @property
    def unowned_ms(self) -> int:
        """Partitions times milliseconds."""
        return self._ownership.unowned_ms

    @property
    def silent_ms(self) -> int:
        """Partitions times milliseconds: how long members that then expired kept theirs after their last heartbeat."""
        return self._ownership.silent_ms

    def charge(self, now_ms: int) -> None:
        """Counts up to now, for a scrape. A wait for members is counted when it ends: its kind is known then."""
        if self._wait_for is not WaitFor.MEMBER:
            self._charge_waits(now_ms)
        self._ownership.charge(now_ms)

    def observe(self, fact: Fact, now_ms: int) -> None:
        """A large group has some facts for each of its members: those that change nothing here must cost little."""
        kind = fact.__class__
        if kind is MemberRemoved:
            self._note_deadline(fact)
        # A large step reports its facts later, and a scrape may have charged up to now by then: no counter falls.
        if now_ms > self._waits_since_ms:
            self._charge_waits(now_ms)
            self._ownership.charge(now_ms)
        handle = _HANDLERS.get(kind)
        if handle is not None:
            handle(self, fact)

    def _note_deadline(self, fact: Fact) -> None:
        """Before what was waited for is charged: until now, it was the deadline."""
        is_late = isinstance(fact, MemberRemoved) and fact.cause is Cause.NOT_REJOINED
        if is_late and self._wait_for is WaitFor.MEMBER:
            self._wait_for = WaitFor.DEADLINE

    def _member_joined(self, fact: MemberJoined) -> None:
        self._joined.add(fact.member_id)

    def _member_rejoined(self, fact: MemberRejoined) -> None:
        self._joined.add(fact.member_id)
        self._ownership.keep_of(fact)

    def _member_removed(self, fact: MemberRemoved) -> None:
        self._joined.discard(fact.member_id)
        self._synced.discard(fact.member_id)
        self._ownership.take_from(fact.member_id)

    def _session_expired(self, fact: SessionExpired) -> None:
        self._ownership.add_silence(fact)

    def _member_assigned(self, fact: MemberAssigned) -> None:
        self._ownership.assign(fact)

    def _generation_completed(self, _fact: GenerationCompleted) -> None:
        self._ownership.complete()

    def _static_member_replaced(self, fact: StaticMemberReplaced) -> None:
        self._ownership.rename(fact)
        if self._wait_for in _OF_JOIN_PHASES:
            self._joined.discard(fact.old_member_id)
            self._joined.add(fact.new_member_id)

    def _rebalance_started(self, fact: RebalanceStarted) -> None:
        if fact.cause is Cause.STATIC_MEMBER_REPLACED and fact.member_id is not None:
            self._joined.add(fact.member_id)

    def _join_phase_extended(self, _fact: JoinPhaseExtended) -> None:
        if not self._joined:
            # Static members have not come back: their sessions are waited for.
            self._wait_for = WaitFor.MEMBER

    def _member_synced(self, fact: MemberSynced) -> None:
        if self._wait_for in _OF_SYNC_PHASES:
            self._synced.add(fact.member_id)
            if fact.is_leader:
                self._wait_for = WaitFor.STORING

    def _state_changed(self, fact: StateChanged) -> None:
        self._synced.clear()
        match fact.to_state:
            case GroupState.PREPARING_REBALANCE:
                was_empty = fact.from_state is GroupState.EMPTY
                self._wait_for = WaitFor.INITIAL_DELAY if was_empty else WaitFor.MEMBER
            case GroupState.COMPLETING_REBALANCE:
                self._joined.clear()
                self._wait_for = WaitFor.LEADER
            case _:
                self._joined.clear()
                self._wait_for = None
        if fact.to_state in _WITHOUT_MEMBERS:
            self._ownership.forget()

    def _charge_waits(self, now_ms: int) -> None:
        passed_ms = now_ms - self._waits_since_ms
        self._waits_since_ms = now_ms
        if self._wait_for is not None:
            waiting = self._joined if self._wait_for in _OF_JOIN_PHASES else self._synced
            self.waited_ms[self._wait_for.value] += passed_ms * len(waiting)

    @classmethod
    def handlers(cls) -> Mapping[type[Fact], Callable[..., None]]:
        """What is done with a fact of this class, beside the charge of what was waited for until then."""
        return {
            MemberJoined: cls._member_joined,
            MemberRejoined: cls._member_rejoined,
            MemberRemoved: cls._member_removed,
            SessionExpired: cls._session_expired,
            MemberAssigned: cls._member_assigned,
            GenerationCompleted: cls._generation_completed,
            StaticMemberReplaced: cls._static_member_replaced,
            RebalanceStarted: cls._rebalance_started,
            JoinPhaseExtended: cls._join_phase_extended,
            MemberSynced: cls._member_synced,
            StateChanged: cls._state_changed,
        }


_HANDLERS = GroupWaits.handlers()
_WITHOUT_MEMBERS = (GroupState.EMPTY, GroupState.DEAD)
_OF_SYNC_PHASES = (WaitFor.LEADER, WaitFor.STORING)
_OF_JOIN_PHASES = (WaitFor.INITIAL_DELAY, WaitFor.MEMBER, WaitFor.DEADLINE)


class _Ownership:
    """Which member has which partitions, as far as its group should have them all."""

    def __init__(self, now_ms: int) -> None:
        self.unowned_ms = 0
        self.silent_ms = 0
        self._since_ms = now_ms
        self._owned: dict[str, Partitions] = {}
        # What members were given in this generation, and in the one that is handed out as far as that is known: the
        # assignment as it was sent, and its partitions. There may be ten thousand, so they are put together member by
        # member, and not parsed again where a member keeps what it had.
        self._given: dict[str, tuple[bytes, Partitions]] = {}
        self._next: dict[str, tuple[bytes, Partitions]] = {}
        self._next_all: set[tuple[str, int]] = set()
        # All that should have an owner, and how many of them have none.
        self._all: set[tuple[str, int]] = set()
        self._unowned = 0

    def charge(self, now_ms: int) -> None:
        self.unowned_ms += self._unowned * (now_ms - self._since_ms)
        self._since_ms = now_ms

    def assign(self, fact: MemberAssigned) -> None:
        given = self._given.get(fact.member_id)
        if given is None or given[0] != fact.assignment:
            given = fact.assignment, _assigned(fact)
        self._next[fact.member_id] = given
        self._next_all |= given[1]

    def complete(self) -> None:
        """What was assigned is handed out."""
        self._given, self._next = self._next, {}
        self._owned = {member_id: partitions for member_id, (_, partitions) in self._given.items()}
        left_out = self._all - self._next_all
        if left_out:
            topics = {topic for topic, _ in self._next_all}
            left_out = {each for each in left_out if each[0] in topics}
            self._next_all |= left_out
        self._all, self._next_all = self._next_all, set()
        self._unowned = len(left_out)

    def keep_of(self, fact: MemberRejoined) -> None:
        if self._owned.get(fact.member_id):
            self._keep(fact.member_id, _kept(fact))

    def take_from(self, member_id: str) -> None:
        self._keep(member_id, NO_PARTITIONS)

    def add_silence(self, fact: SessionExpired) -> None:
        self.silent_ms += fact.session_timeout_ms * len(self._owned.get(fact.member_id, NO_PARTITIONS))

    def rename(self, fact: StaticMemberReplaced) -> None:
        self._owned[fact.new_member_id] = self._owned.pop(fact.old_member_id, NO_PARTITIONS)

    def forget(self) -> None:
        self._owned, self._given, self._next = {}, {}, {}
        self._next_all, self._all, self._unowned = set(), set(), 0

    def _keep(self, member_id: str, kept: Partitions) -> None:
        owned = self._owned.get(member_id, NO_PARTITIONS)
        self._owned[member_id] = owned & kept
        self._unowned += len(owned) - len(self._owned[member_id])


def has_no_partition(assignment: bytes) -> bool:
    """An assignment of any version begins with its version and the number of its topics. It is not parsed: there may be
    thousands."""
    return assignment[2:6] in _NO_TOPICS


def _assigned(fact: MemberAssigned) -> Partitions:
    if fact.protocol_type != PROTOCOL_TYPE or has_no_partition(fact.assignment):
        return NO_PARTITIONS
    try:
        topics = parse_assignment(fact.assignment).assigned_partitions
    except DecodeError:
        return NO_PARTITIONS
    return frozenset((each.topic, index) for each in topics for index in each.partitions)


def _kept(fact: MemberRejoined) -> Partitions:
    """Members with an eager assignor have given up all they had before they join again; others say what they keep."""
    if fact.protocol_type != PROTOCOL_TYPE:
        return NO_PARTITIONS
    try:
        topics = parse_subscription(fact.subscription).owned_partitions
    except DecodeError:
        return NO_PARTITIONS
    return frozenset((each.topic, index) for each in topics for index in each.partitions)

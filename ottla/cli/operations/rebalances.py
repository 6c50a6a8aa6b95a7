"""The rebalances of a group and what they cost, from the broker's events: the answer to `ottla groups why`.

A rebalance is counted by the generation that it begins. It is *initial* when the group had no members before: then the
join phase is `group.initial.rebalance.delay.ms`, and no member was waited for. Otherwise the last member to join, or to
be dropped because it did not, is the one that the others waited for, since the rebalance started.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ottla.cli.operations.group_events import (
    Event,
    EventClock,
    Ownership,
    TopicPartition,
    cause_of,
    member_name,
    partitions_of,
)

# Removals that the other members of a rebalance have waited for.
HELD_UP = ("did not rejoin in time", "session expired", "new member's join timed out")
TYPES = frozenset(
    {
        "state_changed", "member_joined", "member_rejoined", "member_removed", "member_assigned", "rebalance_started",
        "generation_started", "generation_completed", "static_member_replaced", "pending_member_dropped", "dropped",
    }
)  # fmt: skip


@dataclass
class Rebalance:
    """Times of day are milliseconds since 1970. `duration_ms` is None while it has not ended. `member`, which caused
    it, and `waited_for` are ids until the end of the group's events, and names then."""

    generation: int
    started_ms: int
    cause: str
    member: str | None
    client_reason: str | None
    is_initial: bool
    outcome: str = "open"
    duration_ms: int | None = None
    join_phase_ms: int | None = None
    sync_phase_ms: int | None = None
    waited_for: str | None = None
    waited_ms: int = 0


@dataclass(slots=True)
class Unowned:
    """How often and how long a partition was without an owner while the group had members."""

    times: int = 0
    total_ms: int = 0
    longest_ms: int = 0
    since_ms: int | None = None
    """The time of day since when it has had none; None: it has one, or the group has no members."""

    def add(self, duration_ms: int) -> None:
        self.times += 1
        # Mostly it is given away in the moment in which it is taken.
        if duration_ms:
            self.total_ms += duration_ms
            self.longest_ms = max(self.longest_ms, duration_ms)


@dataclass
class GroupRebalances:
    """Of one group: `add` its events in their order, then `end`."""

    group_id: str
    rebalances: list[Rebalance] = field(default_factory=list[Rebalance])
    removals: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The members that were removed, each with the cause."""
    unowned: defaultdict[TopicPartition, Unowned] = field(default_factory=lambda: defaultdict(Unowned))
    dropped_events: int = 0
    is_empty: bool = False
    """Whether the group had no members at the end."""
    moved: list[TopicPartition] = field(default_factory=list[TopicPartition])
    """The partitions that changed hands in the latest generation."""
    longest_unowned_ms: int = 0
    """How long one of those that were given in the latest generation had been without an owner, at most."""
    _clock: EventClock = field(default_factory=EventClock)
    _ownership: Ownership = field(default_factory=Ownership)
    # The latest event of each member that has its client id, and the client ids that two members have had at once.
    _members: dict[str, Event] = field(default_factory=dict[str, Event])
    _shared_client_ids: set[str] = field(default_factory=set[str])
    _given: dict[str, set[TopicPartition]] = field(default_factory=dict[str, set[TopicPartition]])
    _was_empty: bool = False
    _started_at_ms: int = 0

    @property
    def incomplete_ms(self) -> int:
        """How long at least one partition was without an owner while the group had members."""
        return self._ownership.incomplete_ms

    @property
    def rebalance_ms(self) -> int:
        return sum(each.duration_ms or 0 for each in self.rebalances)

    def add(self, event: Event) -> None:
        if "client_id" in event and "member_id" in event:
            self._members[event["member_id"]] = event
        self._clock.advance(event)
        handler = _HANDLERS.get(event["type"])
        if handler is not None:
            handler(self, event)

    def name_of(self, member_id: str) -> str:
        """A name that no other member has."""
        event = self._members.get(member_id)
        return member_id if event is None else member_name(event)

    def _client_of(self, member_id: str) -> str:
        """At the end: a client id is a name that stays over restarts, where members do not share it."""
        event = self._members.get(member_id)
        is_name = event is not None and not event.get("group_instance_id")
        if event is not None and is_name and event["client_id"] not in self._shared_client_ids:
            return str(event["client_id"]) or member_id
        return self.name_of(member_id)

    def end(self) -> None:
        """There are no more events."""
        for each in self.rebalances:
            each.member = None if each.member is None else self._client_of(each.member)
            each.waited_for = None if each.waited_for is None else self._client_of(each.waited_for)
        self.removals = [(self._client_of(member_id), cause) for member_id, cause in self.removals]
        self._ownership.advance(self._clock.now_ms)
        for partition, freed_ms in self._ownership.freed_ms.items():
            unowned = self.unowned[partition]
            unowned.add(self._clock.now_ms - freed_ms)
            unowned.since_ms = freed_ms + self._clock.wall_ahead_ms

    @property
    def _open(self) -> Rebalance | None:
        """The rebalance that has no generation yet, or whose generation has no assignment yet."""
        last = self.rebalances[-1] if self.rebalances else None
        return last if last is not None and last.duration_ms is None else None

    def _close(self, outcome: str) -> None:
        rebalance = self._open
        if rebalance is not None:
            rebalance.outcome = outcome
            rebalance.duration_ms = self._clock.now_ms - self._started_at_ms

    def _state_changed(self, event: Event) -> None:
        self._was_empty = event["from_state"] == "Empty"
        self.is_empty = event["to_state"] in ("Empty", "Dead")
        if self.is_empty:
            self._close("emptied")
            self._add_unowned(self._ownership.forget(self._clock.now_ms))

    def _rebalance_started(self, event: Event) -> None:
        self._close("superseded")
        self._started_at_ms = self._clock.now_ms
        self.rebalances.append(
            Rebalance(
                generation=event["generation"] + 1,
                started_ms=event["wall_ms"],
                cause=cause_of(event),
                member=event.get("member_id"),
                client_reason=event.get("client_reason"),
                is_initial=self._was_empty,
            )
        )
        self._was_empty = False

    def _member_came(self, event: Event) -> None:
        """It joined, or the others wait for it no more."""
        rebalance = self._open
        if rebalance is None or rebalance.join_phase_ms is not None or rebalance.is_initial:
            return
        waited_ms = self._clock.now_ms - self._started_at_ms
        if waited_ms > 0:
            rebalance.waited_for, rebalance.waited_ms = event["member_id"], waited_ms

    _member_joined = _pending_member_dropped = _member_came

    def _member_rejoined(self, event: Event) -> None:
        self._ownership.keep(event["member_id"], partitions_of(event.get("owned", {})), self._clock.now_ms)
        self._member_came(event)

    def _member_removed(self, event: Event) -> None:
        self._ownership.keep(event["member_id"], set(), self._clock.now_ms)
        self.removals.append((event["member_id"], cause_of(event)))
        if event["cause"] in HELD_UP:
            self._member_came(event)

    def _static_member_replaced(self, event: Event) -> None:
        self._ownership.rename(event["old_member_id"], event["new_member_id"])

    def _generation_started(self, event: Event) -> None:
        self._given = {}
        known = (self._members[each] for each in event["member_ids"] if each in self._members)
        counts = Counter(each["client_id"] for each in known)
        self._shared_client_ids.update(client_id for client_id, count in counts.items() if count > 1)
        if (rebalance := self._open) is not None:
            rebalance.join_phase_ms = event["join_phase_ms"]

    def _member_assigned(self, event: Event) -> None:
        self._given[event["member_id"]] = partitions_of(event.get("assigned", {}))

    def _generation_completed(self, event: Event) -> None:
        self.moved, unowned_ms = self._ownership.give(self._given, self._clock.now_ms)
        self.longest_unowned_ms = max(unowned_ms.values(), default=0)
        self._add_unowned(unowned_ms)
        if (rebalance := self._open) is not None:
            rebalance.sync_phase_ms = event["sync_phase_ms"]
        self._close("completed")

    def _dropped(self, event: Event) -> None:
        self.dropped_events += event["count"]

    def _add_unowned(self, unowned_ms: dict[TopicPartition, int]) -> None:
        unowned = self.unowned
        for partition, duration_ms in unowned_ms.items():
            unowned[partition].add(duration_ms)


_HANDLERS: dict[str, Callable[[GroupRebalances, Event], None]] = {
    name: getattr(GroupRebalances, f"_{name}") for name in TYPES
}


@dataclass(frozen=True, slots=True)
class Share:
    """What rebalances have in common: a cause, or a member that was waited for."""

    name: str
    times: int
    total_ms: int
    members: tuple[str, ...] = ()


def causes(rebalances: Iterable[Rebalance]) -> list[Share]:
    """Most frequent first, with the members that each came from."""
    by_cause: dict[str, list[Rebalance]] = {}
    for each in rebalances:
        by_cause.setdefault(each.cause, []).append(each)
    shares = [
        Share(
            cause,
            len(found),
            sum(each.duration_ms or 0 for each in found),
            tuple(dict.fromkeys(each.member for each in found if each.member is not None)),
        )
        for cause, found in by_cause.items()
    ]
    return sorted(shares, key=lambda share: (-share.times, share.name))


def waits(rebalances: Iterable[Rebalance]) -> list[Share]:
    """For whom the others waited longest, first."""
    by_member: dict[str, list[int]] = {}
    for each in rebalances:
        if each.waited_for is not None:
            by_member.setdefault(each.waited_for, []).append(each.waited_ms)
    shares = [Share(member, len(waited_ms), sum(waited_ms)) for member, waited_ms in by_member.items()]
    return sorted(shares, key=lambda share: (-share.total_ms, share.name))

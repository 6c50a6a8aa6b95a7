"""Metrics of consumer groups: what their coordinator is notified of is counted, the rest is read from the groups."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from ottla.broker.admin.metrics.exposition import Sample, joined, labels
from ottla.broker.admin.metrics.group_labels import GroupLabels
from ottla.broker.admin.metrics.group_waits import GroupWaits, has_no_partition
from ottla.broker.admin.metrics.source import OTHER, Budget, Samples
from ottla.broker.coordinators.observers import NotedFacts
from ottla.broker.histogram import Histogram
from ottla.broker.replicas.partition_ends import EndsOfPartitions
from ottla.broker.runtime import LoopRuntime
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.states import GroupState
from ottla.coordinator.durable_state import LoggedOffset, TopicPartition
from ottla.coordinator.facts import (
    Fact,
    GenerationCompleted,
    GenerationStarted,
    GroupLoaded,
    MemberIdHandedOut,
    MemberRemoved,
    MissingAssignments,
    OffsetsCommitted,
    OffsetsRemoved,
    PendingMemberDropped,
    RebalanceStarted,
    RecordsSkipped,
    StateChanged,
    StaticMemberRestored,
    StoreFailed,
)
from ottla.coordinator.group_shard import GroupShard
from ottla.protocol.consumer_protocol import PROTOCOL_TYPE

# They change nothing that is counted, or happened elsewhere: a group that is loaded has had its rebalances.
_NOT_COUNTED = frozenset(
    {
        GroupLoaded,
        MemberIdHandedOut,
        MissingAssignments,
        OffsetsRemoved,
        PendingMemberDropped,
        RecordsSkipped,
        StaticMemberRestored,
    }
)
PHASES = ("join", "sync", "total")
# As much work as another item of a pass.
FACTS_PER_ITEM = 8
# Clients choose them. So many have series of their own, first come, if they are no longer than this.
PROTOCOL_TYPES_MAX = 10
PROTOCOL_TYPE_LENGTH_MAX = 64


class GroupCounts:
    """What has happened to one group since it is coordinated here."""

    __slots__ = ("commits", "is_in_other", "last_ms", "rebalances", "removed", "store_failures", "waits")

    def __init__(self, now_ms: int) -> None:
        self.rebalances: Counter[str] = Counter()
        self.removed: Counter[str] = Counter()
        self.last_ms: dict[str, int] = {}
        self.commits = 0
        self.store_failures = 0
        self.waits = GroupWaits(now_ms)
        self.is_in_other = False
        """Whether it has been exported with those of other groups, under the label of the rest."""


@dataclass(frozen=True, slots=True)
class _Total:
    """A counter of groups: by the values of a label, where it has one beside the group's."""

    of: Callable[[GroupCounts], Mapping[str, int]]
    label: str = ""
    per_unit: int = 0
    """How many of what is counted are one of the family's unit, where that is another."""

    def sample(self, text: str, value: str, number: int) -> Sample:
        named = joined(text, labels(**{self.label: value}) if self.label else "")
        return named, number / self.per_unit if self.per_unit else number


_TOTALS: Mapping[str, _Total] = {
    "ottla_group_rebalances_total": _Total(lambda counts: counts.rebalances, "cause"),
    "ottla_group_members_removed_total": _Total(lambda counts: counts.removed, "cause"),
    "ottla_group_commits_total": _Total(lambda counts: {"": counts.commits}),
    "ottla_group_store_failures_total": _Total(
        lambda counts: {"": counts.store_failures} if counts.store_failures else {}
    ),
    "ottla_group_wait_seconds_total": _Total(lambda counts: counts.waits.waited_ms, "for", 1000),
    "ottla_group_partition_seconds_unowned_total": _Total(lambda counts: {"": counts.waits.unowned_ms}, per_unit=1000),
    "ottla_group_partition_seconds_silent_total": _Total(lambda counts: {"": counts.waits.silent_ms}, per_unit=1000),
}


class ServedPartition(Protocol):
    began_ms: int


class CoordinatedGroups(Protocol):
    """The groups of this broker; none before the coordinator has been made."""

    def loaded_shards(self) -> list[GroupShard]: ...


class GroupSource:
    def __init__(
        self, runtime: LoopRuntime, ends: EndsOfPartitions, coordinators: CoordinatedGroups, names: GroupLabels
    ) -> None:
        config = runtime.config
        self._runtime = runtime
        self._ends = ends
        self._coordinators = coordinators
        self._groups = Budget(config.ottla_metrics_groups_max, names.of)
        self._protocol_types = Budget(PROTOCOL_TYPES_MAX, str)
        self._lags = Budget(config.ottla_metrics_lag_max, names.of_partition)
        self._lagging_topics = Budget(config.ottla_metrics_topics_max, _lags_beyond)
        self._counts: dict[str, GroupCounts] = {}
        # By family: what groups had counted that are not among those without series of their own any more. A counter
        # that fell would be taken for one that began again, and the rest of it for news.
        self._left_behind: dict[str, Counter[str]] = {family: Counter() for family in _TOTALS}
        self._phases = {phase: Histogram() for phase in PHASES}
        self._loads = Histogram()
        self._counted = self._counters()
        self.facts = NotedFacts(runtime, self.observe)
        # As of the last pass: groups with series of their own, and the others.
        self.rows: list[tuple[str, ClassicGroup]] = []
        self._others: list[ClassicGroup] = []
        self._states: Counter[tuple[str, str]] = Counter()
        self._parked: Counter[str] = Counter()
        self.families: Mapping[str, Callable[[], Samples]] = {
            "ottla_requests_parked": lambda: [(labels(purgatory=p), n) for p, n in self._parked.items()],
            "ottla_groups": self._states_of_groups,
            "ottla_group_members": self._members,
            "ottla_group_idle_members": self._idle_members,
            "ottla_group_generation": lambda: [(text, group.generation) for text, group in self.rows],
            "ottla_group_state_seconds": self._state_seconds,
            "ottla_group_rebalance_seconds": lambda: [(labels(phase=p), each) for p, each in self._phases.items()],
            "ottla_group_rebalance_last_seconds": self._last_seconds,
            **{family: partial(self._totals, family) for family in _TOTALS},
            "ottla_group_load_seconds": lambda: [("", self._loads)],
            "ottla_group_lag_records": self._lag,
            "ottla_metrics_overflow": lambda: [
                (labels(kind="groups"), self._groups.overflow),
                (labels(kind="lags"), self._lags.overflow),
            ],
        }

    def _counters(self) -> Mapping[type[Fact], Callable[[Any, GroupCounts], None]]:
        """What is done with a fact of this class, beside what is noted of waits."""
        return {
            RebalanceStarted: self._rebalance_started,
            MemberRemoved: self._member_removed,
            GenerationStarted: self._generation_started,
            GenerationCompleted: self._generation_completed,
            StateChanged: self._state_changed,
            StoreFailed: self._store_failed,
        }

    # What the coordinator reports.

    def loaded(self, partition: ServedPartition) -> None:
        """A partition of `__consumer_offsets` is served from now on."""
        self._loads.observe((self._runtime.clock.now_ms() - partition.began_ms) * 1_000_000)

    def observe(self, fact: Any, now_ms: int) -> None:
        """A large group has some facts for each of its members, and what a client commits in is one too: what is done
        with each must cost little."""
        kind = fact.__class__
        if kind in _NOT_COUNTED:
            return
        counts = self._counts.get(fact.group_id) or self._of(fact.group_id, now_ms)
        if kind is OffsetsCommitted:
            counts.commits += 1
            return
        counts.waits.observe(fact, now_ms)
        count = self._counted.get(kind)
        if count is not None:
            count(fact, counts)

    def _rebalance_started(self, fact: RebalanceStarted, counts: GroupCounts) -> None:
        counts.rebalances[fact.cause.value] += 1

    def _member_removed(self, fact: MemberRemoved, counts: GroupCounts) -> None:
        counts.removed[fact.cause.value] += 1

    def _generation_started(self, fact: GenerationStarted, counts: GroupCounts) -> None:
        counts.last_ms["join"] = fact.join_phase_ms
        self._phases["join"].observe(fact.join_phase_ms * 1_000_000)

    def _generation_completed(self, fact: GenerationCompleted, counts: GroupCounts) -> None:
        last_ms = counts.last_ms
        last_ms["sync"] = fact.sync_phase_ms
        self._phases["sync"].observe(fact.sync_phase_ms * 1_000_000)
        if "join" in last_ms:
            last_ms["total"] = last_ms["join"] + fact.sync_phase_ms
            self._phases["total"].observe(last_ms["total"] * 1_000_000)

    def _state_changed(self, fact: StateChanged, counts: GroupCounts) -> None:
        """Nothing more is counted of a group that is deleted, or that another broker coordinates: perhaps there is
        never a scrape that would notice."""
        if fact.to_state is GroupState.DEAD:
            self._leave_behind(counts)
            del self._counts[fact.group_id]

    def _store_failed(self, _fact: StoreFailed, counts: GroupCounts) -> None:
        counts.store_failures += 1

    def _leave_behind(self, counts: GroupCounts) -> None:
        """It is not one of the groups without series of their own from now on."""
        if counts.is_in_other:
            counts.is_in_other = False
            for family, total in _TOTALS.items():
                self._left_behind[family].update(total.of(counts))

    def _of(self, group_id: str, now_ms: int) -> GroupCounts:
        counts = self._counts.get(group_id)
        if counts is None:
            counts = self._counts[group_id] = GroupCounts(now_ms)
        return counts

    # Samples.

    def prepare(self) -> Iterator[None]:
        while self.facts:
            yield
            self.facts.hand_on(FACTS_PER_ITEM)
        rows: list[tuple[str, ClassicGroup]] = []
        others: list[ClassicGroup] = []
        states: Counter[tuple[str, str]] = Counter()
        parked: Counter[str] = Counter(join=0, sync=0)
        here: set[str] = set()
        for shard in self._coordinators.loaded_shards():
            for group_id, group in list(shard.groups.items()):
                yield
                here.add(group_id)
                states[group.state.value, self._shown_type(group.protocol_type)] += 1
                parked["join"] += group.parked_joins
                if group.state is GroupState.COMPLETING_REBALANCE:
                    parked["sync"] += sum(member.parked_sync is not None for member in group.members.values())
                text = self._groups.labels(group_id)
                if text is None:
                    others.append(group)
                    continue
                rows.append((text, group))
                if group_id in self._counts:
                    self._leave_behind(self._counts[group_id])
        self._groups.end_pass()
        self._protocol_types.end_pass()
        self.rows, self._others, self._states, self._parked = rows, others, states, parked
        for group_id, counts in list(self._counts.items()):
            yield
            # What happened in between comes first: what is counted does not fall.
            self.facts.hand_on()
            counts.waits.charge(self._runtime.broker_clock.now_ms())
            if group_id not in here and self._counts.get(group_id) is counts:
                # It is deleted, or another broker coordinates it.
                self._leave_behind(counts)
                del self._counts[group_id]

    def _shown_type(self, protocol_type: str | None) -> str:
        """As the value of a label."""
        if not protocol_type:
            return ""
        shown = self._protocol_types.labels(protocol_type) if len(protocol_type) <= PROTOCOL_TYPE_LENGTH_MAX else None
        return OTHER if shown is None else shown

    def offsets(self) -> Iterator[tuple[str, dict[TopicPartition, LoggedOffset]]]:
        for shard in self._coordinators.loaded_shards():
            yield from list(shard.durable.offsets.items())

    def _states_of_groups(self) -> Iterator[Sample]:
        for (state, protocol_type), count in self._states.items():
            yield labels(state=state, protocol_type=protocol_type), count

    def _members(self) -> Iterator[Sample | None]:
        for text, group in self.rows:
            yield text, len(group.members)
        if self._others:
            yield labels(group=OTHER), sum(len(group.members) for group in self._others)

    def _idle_members(self) -> Iterator[Sample | None]:
        for text, group in self.rows:
            is_known = group.state is GroupState.STABLE and group.protocol_type == PROTOCOL_TYPE
            idle = sum(has_no_partition(member.assignment) for member in group.members.values()) if is_known else 0
            yield (text, idle) if is_known else None

    def _state_seconds(self) -> Iterator[Sample]:
        wall_ms = self._runtime.broker_clock.wall_ms()
        for text, group in self.rows:
            in_state = max(wall_ms - group.state_timestamp_ms, 0)
            yield joined(text, labels(state=group.state.value)), in_state / 1000

    def _last_seconds(self) -> Iterator[Sample | None]:
        for text, group in self.rows:
            counts = self._counts.get(group.group_id)
            if counts is None:
                yield None
                continue
            for phase, lasted_ms in list(counts.last_ms.items()):
                yield joined(text, labels(phase=phase)), lasted_ms / 1000

    def _totals(self, family: str) -> Iterator[Sample | None]:
        total = _TOTALS[family]
        for text, group in self.rows:
            counts = self._counts.get(group.group_id)
            if counts is None:
                yield None
                continue
            for value, number in list(total.of(counts).items()):
                yield total.sample(text, value, number)
        rest = Counter(self._left_behind[family])
        for group in self._others:
            yield None
            counts = self._counts.get(group.group_id)
            if counts is not None:
                counts.is_in_other = True
                rest.update(total.of(counts))
        for value, number in rest.items():
            yield total.sample(labels(group=OTHER), value, number)

    def _lag(self) -> Iterator[Sample | None]:
        beyond, other_topics = Counter[str](), _lags_beyond(OTHER)
        for group_id, offsets in self.offsets():
            for (topic, index), logged in list(offsets.items()):
                lag = self.lag(topic, index, logged)
                if lag is None:
                    yield None
                    continue
                text = self._lags.labels(group_id, topic, index)
                if text is None:
                    beyond[self._lagging_topics.labels(topic) or other_topics] += lag
                    yield None
                else:
                    yield text, lag
        yield from beyond.items()
        self._lags.end_pass()
        self._lagging_topics.end_pass()

    def lag(self, topic: str, index: int, logged: LoggedOffset) -> int | None:
        """None where the end is not known. Where a replica is here, the end is read after the offset that was
        committed, in one step."""
        ends = self._ends.find(topic, index, is_transactional=logged.is_transactional)
        return None if ends is None else ends.lag(logged.committed.offset)


def _lags_beyond(topic: str) -> str:
    """The labels of all lags of a topic that have no series of their own."""
    return labels(group=OTHER, topic=topic, partition=OTHER)

"""What can be waited for, and what is said when it does not come: the state, what is missing, and hints."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic_ns
from typing import Final, TypeAlias

from ottla.protocol.errors import ErrorCode
from ottla.testing.histories import GroupHistories
from ottla.testing.reading import BrokerReader, near_names
from ottla.testing.views import GroupRebalance, GroupView, MemberView
from ottla.testing.waits import Explanation
from ottla.testing.wire import WireRing

STABLE: Final = "Stable"
PREPARING_REBALANCE: Final = "PreparingRebalance"
COMPLETING_REBALANCE: Final = "CompletingRebalance"


@dataclass(frozen=True, slots=True)
class Sources:
    """What conditions look at."""

    reader: BrokerReader
    histories: GroupHistories
    wire: WireRing
    now_ms: Callable[[], int]
    """By the clock of the brokers that is never set."""


@dataclass(frozen=True, slots=True)
class GroupCondition:
    """`holds` says of a view of the group whether it is what was waited for, `lacks` what it lacks."""

    sources: Sources
    group_id: str
    wanted: str
    holds: Callable[[GroupView], bool]
    lacks: Callable[[GroupView], Iterable[str]]
    commits_of: str | None = None
    """The topic whose commits are waited for."""

    def is_met(self) -> bool:
        return self.holds(self.sources.reader.group(self.group_id))

    def explain(self) -> Explanation:
        view = self.sources.reader.group(self.group_id)
        if not view.exists:
            return self._explain_absence()
        last = next(iter(self.sources.histories.of(self.group_id)[-1:]), None)
        missing = [*self._members_awaited(view), *self.lacks(view)]
        return Explanation(self._state(view, last), missing, list(self._hints(view, last)))

    def _explain_absence(self) -> Explanation:
        names = self.sources.reader.group_ids()
        near = near_names("group", self.group_id, names)
        open_now = len(self.sources.reader.connections())
        connected = f"{open_now} clients are connected" if open_now else "no client is connected"
        return Explanation(f"there is no group {self.group_id!r}; {near}", (), [f"{connected}, and none has joined it"])

    def _state(self, view: GroupView, last: GroupRebalance | None) -> str:
        since_ms = self.sources.histories.state_since(self.group_id)
        lasted = "" if since_ms is None else f" for {(self.sources.now_ms() - since_ms) / 1000:.1f} s"
        words = [f"{view.state}{lasted}, generation {view.generation}, {_count(len(view.members), 'member')}"]
        if last is not None:
            who = "" if last.member_id is None else f" ({last.member_id})"
            words.append(f"cause of the last rebalance: {last.cause}{who}")
        return "; ".join(words)

    def _members_awaited(self, view: GroupView) -> Iterator[str]:
        if view.state not in (PREPARING_REBALANCE, COMPLETING_REBALANCE):
            return
        request = "JoinGroup" if view.state == PREPARING_REBALANCE else "SyncGroup"
        for member in view.members:
            if member.waits_for != request:
                yield f"{request} of {_described(member)}"

    def _hints(self, view: GroupView, last: GroupRebalance | None) -> Iterator[str]:
        if self.commits_of is not None:
            yield from self._not_committed(view, self.commits_of)
        since_ns = 0
        if last is not None:
            since_ns = last.started_ns
        for member in view.members:
            if view.state == PREPARING_REBALANCE and member.waits_for is None:
                events = self.sources.wire.answered(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS, since_ns)
                times = sum(1 for _ in events)
                if times:
                    answered = f"was answered REBALANCE_IN_PROGRESS {times_text(times)}"
                    yield f"{member.member_id} {answered} and has not polled since"
                elif not self._has_asked(member, since_ns):
                    yield f"{member.member_id} has sent nothing since the rebalance began: it is gone, or held up"

    def _not_committed(self, view: GroupView, topic: str) -> Iterator[str]:
        """What members have, and only a commit is missing: the first partition alone."""
        found = self.sources.reader.topic(topic)
        if found is None or not view.members:
            return
        for each in found.partitions:
            given = self.sources.wire.deliveries.end(topic, found.topic_id, each.partition)
            committed = view.offsets.get((topic, each.partition), each.log_start_offset)
            if given > committed:
                what = f"{topic}-{each.partition} was given to consumers up to offset {given - 1}, and not"
                yield f"{what} committed; automatic commits come every auto.commit.interval.ms, 5 s unless set"
                return

    def _has_asked(self, member: MemberView, since_ns: int) -> bool:
        events = self.sources.wire.since(0)
        return any(event.member_id == member.member_id and event.at_ns >= since_ns for event in events)


def group_stable(
    sources: Sources, group_id: str, members: int | None, assigned: Mapping[str, int] | None
) -> GroupCondition:
    """`assigned`: how many partitions of a topic have an owner."""

    def holds(view: GroupView) -> bool:
        has_members = members is None or len(view.members) == members
        return view.state == STABLE and has_members and not list(unassigned(view))

    def unassigned(view: GroupView) -> Iterator[str]:
        for topic, wanted in (assigned or {}).items():
            owned = sum(len(member.assignment.get(topic, ())) for member in view.members)
            if owned != wanted:
                yield f"owners of {topic}: {owned} partitions have one, {wanted} wanted"

    def lacks(view: GroupView) -> Iterator[str]:
        if members is not None and len(view.members) != members:
            yield f"{members} members wanted, {len(view.members)} there: {_names(view)}"
        yield from unassigned(view)

    with_members = "" if members is None else f" with {_count(members, 'member')}"
    return GroupCondition(sources, group_id, f"group {group_id!r} was not stable{with_members}", holds, lacks)


def group_empty(sources: Sources, group_id: str) -> GroupCondition:
    def holds(view: GroupView) -> bool:
        return not view.exists or not view.members

    def lacks(view: GroupView) -> Iterator[str]:
        for member in view.members:
            yield f"LeaveGroup, or the end of the session, of {_described(member)}"

    return GroupCondition(sources, group_id, f"group {group_id!r} was not empty", holds, lacks)


def group_generation(sources: Sources, group_id: str, generation: int) -> GroupCondition:
    wanted = f"group {group_id!r} did not come to generation {generation}"
    return GroupCondition(sources, group_id, wanted, lambda view: view.generation >= generation, lambda _: ())


def group_lag(sources: Sources, group_id: str, lag: int, topic: str) -> GroupCondition:
    reader = sources.reader

    def holds(view: GroupView) -> bool:
        by_partition = reader.lag(view, topic)
        return bool(by_partition) and sum(by_partition.values()) <= lag

    def lacks(view: GroupView) -> Iterator[str]:
        found = reader.topic(topic)
        if found is None:
            yield f"topic {topic!r}; {near_names('topic', topic, reader.topic_names())}"
            return
        left = reader.lag(view, topic)
        for each in found.partitions:
            if left[each.partition]:
                committed = view.offsets.get((topic, each.partition))
                owner = view.owner_of(topic, each.partition)
                yield (
                    f"{topic}-{each.partition}: committed {'nothing' if committed is None else committed}, "
                    f"end {each.high_watermark}, owner {'none' if owner is None else owner.member_id}"
                )

    wanted = f"the lag of group {group_id!r} in {topic} was not {lag} or less"
    return GroupCondition(sources, group_id, wanted, holds, lacks, topic)


def group_committed(sources: Sources, group_id: str, topic: str, offsets: Mapping[int, int]) -> GroupCondition:
    def holds(view: GroupView) -> bool:
        return all(view.offsets.get((topic, partition), -1) >= offset for partition, offset in offsets.items())

    def lacks(view: GroupView) -> Iterator[str]:
        for partition, offset in sorted(offsets.items()):
            committed = view.offsets.get((topic, partition))
            if committed is None or committed < offset:
                yield f"{topic}-{partition}: committed {'nothing' if committed is None else committed}, {offset} wanted"

    wanted = f"group {group_id!r} did not commit {dict(offsets)} of {topic}"
    return GroupCondition(sources, group_id, wanted, holds, lacks, topic)


@dataclass(frozen=True, slots=True)
class TopicCondition:
    """`lacks` gives what the topic lacks, nothing where it is as was waited for."""

    sources: Sources
    topic: str
    wanted: str
    lacks: Callable[[], Iterable[str]]

    def is_met(self) -> bool:
        return self.sources.reader.topic(self.topic) is not None and not list(self.lacks())

    def explain(self) -> Explanation:
        reader = self.sources.reader
        view = reader.topic(self.topic)
        if view is None:
            near = near_names("topic", self.topic, reader.topic_names())
            return Explanation(f"there is no topic {self.topic!r}; {near}")
        ends = ", ".join(
            f"{each.partition}: {each.log_start_offset} to {each.high_watermark}" for each in view.partitions
        )
        return Explanation(f"{self.topic} has records {ends}", list(self.lacks()), list(self._hints()))

    def _hints(self) -> Iterator[str]:
        """Produce requests that were refused."""
        refused: dict[tuple[str, int], int] = {}
        for event in self.sources.wire.since(0):
            if event.api == "Produce" and event.error and self.topic in event.what:
                key = event.connection.name, event.error
                refused[key] = refused.get(key, 0) + 1
        for (name, error), times in refused.items():
            yield f"{times_text(times)} a produce request of {name} was answered {ErrorCode(error).name}"


def topic_records(sources: Sources, topic: str, count: int) -> TopicCondition:
    def lacks() -> Iterator[str]:
        found = sources.reader.record_count(topic, count)
        if found < count:
            yield f"{_count(count - found, 'record')} of {count}"

    return TopicCondition(sources, topic, f"topic {topic!r} did not have {_count(count, 'record')}", lacks)


END: Final = "end"
Upto: TypeAlias = str | Mapping[int, int]
"""END, or by partition the offset before which all is delivered."""


def offsets_upto(count: int | None, upto: Upto | None) -> Mapping[int, int] | None:
    """Those of `upto`; None for END, or where nothing is given. Raises ValueError, also for both."""
    if count is not None and upto is not None:
        raise ValueError(f"count={count} and upto={upto!r}: expected one of them")
    if isinstance(upto, str) and upto != END:
        raise ValueError(f"upto={upto!r}: expected {END!r}, or offsets by partition")
    return None if upto is None or isinstance(upto, str) else upto


def topic_consumed(
    sources: Sources, topic: str, count: int | None, offsets: Mapping[int, int] | None = None
) -> TopicCondition:
    """Without `count` and `offsets` up to END, which is where the committed records end at each look."""
    if count is not None:
        return _count_consumed(sources, topic, count)

    def lacks() -> Iterator[str]:
        for index in _indexes(sources, topic) if offsets is None else sorted(offsets):
            if not sources.reader.is_delivered(topic, index, None if offsets is None else offsets[index]):
                given = _delivered_up_to(sources, topic, index)
                yield given if offsets is None else f"{given}; {offsets[index]} wanted"

    to_where = "to the end" if offsets is None else f"up to {dict(offsets)}"
    return TopicCondition(sources, topic, f"topic {topic!r} was not consumed {to_where}", lacks)


def _count_consumed(sources: Sources, topic: str, count: int) -> TopicCondition:
    def lacks() -> Iterator[str]:
        delivered = sources.reader.delivered_count(topic, count)
        if delivered < count:
            for index in _indexes(sources, topic):
                if not sources.reader.is_delivered(topic, index, None):
                    yield _delivered_up_to(sources, topic, index)
            yield f"{_count(count - delivered, 'record')} of {count} to deliver"

    return TopicCondition(sources, topic, f"topic {topic!r} was not consumed for {_count(count, 'record')}", lacks)


def _indexes(sources: Sources, topic: str) -> range:
    view = sources.reader.image.topic(topic)
    return range(0 if view is None else len(view.partitions))


def _delivered_up_to(sources: Sources, topic: str, index: int) -> str:
    view = sources.reader.topic(topic)
    if view is None or index >= len(view.partitions):
        return str(sources.reader.no_partition(topic, index))
    each = view.partitions[index]
    given = sources.wire.deliveries.end(topic, view.topic_id, index)
    return f"{topic}-{index}: delivered up to {given}, end {each.high_watermark}"


def topic_in_sync(sources: Sources, topic: str) -> TopicCondition:
    def lacks() -> Iterator[str]:
        view = sources.reader.topic(topic)
        for each in () if view is None else view.partitions:
            out = [node_id for node_id in each.replicas if node_id not in each.isr]
            if out or each.leader is None:
                leader = "no leader" if each.leader is None else f"leader {each.leader}"
                yield f"{topic}-{each.partition}: {leader}, out of sync {', '.join(map(str, out)) or 'none'}"

    return TopicCondition(sources, topic, f"topic {topic!r} was not in sync", lacks)


def partition_led_by(sources: Sources, topic: str, index: int, node_id: int | None) -> TopicCondition:
    """`node_id` None: by any broker."""

    def lacks() -> Iterator[str]:
        state = sources.reader.image.partition(topic, index)
        leader = None if state is None or sources.reader.leader(topic, index) is None else state.leader
        if state is None:
            yield str(sources.reader.no_partition(topic, index))
        elif leader is None or (node_id is not None and leader != node_id):
            yield f"{topic}-{index}: leader {'none' if leader is None else leader}"

    by = "a broker" if node_id is None else f"broker {node_id}"
    return TopicCondition(sources, topic, f"{topic}-{index} was not led by {by}", lacks)


class CoordinatorsLoaded:
    """All partitions of `__consumer_offsets` are served; none where it was not created yet."""

    wanted = "the group coordinators were not loaded"

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def is_met(self) -> bool:
        return not self._sources.reader.coordinators_missing()

    def explain(self) -> Explanation:
        return Explanation(f"{_count(self._sources.reader.coordinators_missing(), 'partition')} without a coordinator")


class ClientsIdle:
    """No request of a client has come for so long."""

    def __init__(self, sources: Sources, quiet_ms: float, look: Callable[[], None]) -> None:
        """`look` has the condition looked at again: where nothing comes, nothing else does."""
        self._wire = sources.wire
        self._quiet_ms = quiet_ms
        self._look = look
        self._again: asyncio.TimerHandle | None = None
        self.wanted = f"clients were not idle for {quiet_ms:g} ms"

    def is_met(self) -> bool:
        if self._again is not None:
            self._again.cancel()
        left_ms = self._quiet_ms - self._since_ms()
        if left_ms <= 0:
            return True
        self._again = asyncio.get_running_loop().call_later(left_ms / 1000, self._look)
        return False

    def explain(self) -> Explanation:
        last = next((each for each in reversed(self._wire.since(0)) if not each.connection.is_of_broker), None)
        if last is None:
            return Explanation("no client has asked for anything")
        return Explanation(f"{last.connection.name} sent {last.api} {self._since_ms():.0f} ms ago")

    def _since_ms(self) -> float:
        return (monotonic_ns() - self._wire.last_request_ns()) / 1e6


@dataclass(frozen=True, slots=True)
class GivenCondition:
    """A function of a test, called on the loop of the brokers with their handle."""

    predicate: Callable[[], object]
    describe: str

    @property
    def wanted(self) -> str:
        return f"{self.describe} did not come true"

    def is_met(self) -> bool:
        return bool(self.predicate())

    def explain(self) -> Explanation:
        return Explanation(f"it is {self.predicate()!r}")


def _described(member: MemberView) -> str:
    heard = f"last heard {member.last_heard_ms / 1000:.1f} s ago" if member.waits_for is None else member.waits_for
    ends = f"its session ends in {member.session_ends_in_ms / 1000:.1f} s"
    return f"{member.member_id} ({member.host}): {heard}; {ends}"


def _names(view: GroupView) -> str:
    return ", ".join(member.member_id for member in view.members) or "none"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def times_text(number: int) -> str:
    return "once" if number == 1 else f"{number} times"

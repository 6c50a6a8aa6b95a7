"""What the events of a group (docs/events.md) say beside themselves: the time that passes, and who owns what."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

Event: TypeAlias = Mapping[str, Any]
TopicPartition: TypeAlias = tuple[str, int]

NOTHING: frozenset[TopicPartition] = frozenset()
POLL_TIMEOUT = "max.poll.interval.ms exceeded"
# Java's consumer and librdkafka give this reason when they leave because the application has not polled.
_POLL_TIMEOUT_WORDS = ("poll timeout", "max.poll.interval")


class Ownership:
    """The owner of each partition, from what members are assigned and what they keep when they rejoin.

    Most partitions only pass from one set to another: none of them is looked at by itself that is not without an owner
    for a while."""

    def __init__(self) -> None:
        self.incomplete_ms = 0
        """How long at least one partition was without an owner, up to the last call."""
        # Invariant: no partition has two owners; who has nothing is not in it.
        self._owned: dict[str, set[TopicPartition]] = {}
        self._freed_ms: dict[TopicPartition, int] = {}
        # Invariant: the last owners of the partitions in `_freed_ms`.
        self._former: dict[TopicPartition, str] = {}
        self._now_ms = 0

    @property
    def freed_ms(self) -> Mapping[TopicPartition, int]:
        """The partitions without an owner at the moment, and since when."""
        return self._freed_ms

    def advance(self, now_ms: int) -> None:
        if self._freed_ms:
            self.incomplete_ms += now_ms - self._now_ms
        self._now_ms = now_ms

    def keep(self, member_id: str, kept: set[TopicPartition], now_ms: int) -> None:
        """The member has no other partitions from now on."""
        self.advance(now_ms)
        owned = self._owned.get(member_id)
        if owned is not None and not owned <= kept:
            self._free(member_id, owned - kept)
            self._put_owned(member_id, owned & kept)

    def _free(self, member_id: str, partitions: Collection[TopicPartition]) -> None:
        self._freed_ms.update(dict.fromkeys(partitions, self._now_ms))
        self._former.update(dict.fromkeys(partitions, member_id))

    def rename(self, old_member_id: str, new_member_id: str) -> None:
        owned = self._owned.pop(old_member_id, set())
        self._put_owned(new_member_id, owned | self._owned.get(new_member_id, NOTHING))
        self._former.update({key: new_member_id for key, owner in self._former.items() if owner == old_member_id})

    def give(
        self, assignments: Mapping[str, set[TopicPartition]], now_ms: int
    ) -> tuple[list[TopicPartition], dict[TopicPartition, int]]:
        """A new generation's assignments: the partitions that changed hands, and how long those were without an owner
        that now have one again, in milliseconds."""
        self.advance(now_ms)
        assigned = set[TopicPartition]().union(*assignments.values())
        if len(assigned) < sum(map(len, assignments.values())):
            return self._give_twice(assignments)
        moved: list[TopicPartition] = []
        for member_id, owned in self._owned.items():
            lost = owned - assignments.get(member_id, NOTHING)
            moved += lost & assigned
            self._free(member_id, lost - assigned)
        unowned_ms = dict.fromkeys(moved, 0)
        if self._freed_ms:
            for member_id, given in assignments.items():
                self._end_freedom(member_id, given, moved, unowned_ms)
        self._owned = {member_id: given for member_id, given in assignments.items() if given}
        return moved, unowned_ms

    def _end_freedom(
        self,
        member_id: str,
        given: set[TopicPartition],
        moved: list[TopicPartition],
        unowned_ms: dict[TopicPartition, int],
    ) -> None:
        for partition in self._freed_ms.keys() & given:
            unowned_ms[partition] = self._now_ms - self._freed_ms.pop(partition)
            if self._former.pop(partition) != member_id:
                moved.append(partition)

    def _give_twice(
        self, assignments: Mapping[str, set[TopicPartition]]
    ) -> tuple[list[TopicPartition], dict[TopicPartition, int]]:
        """Members of one generation were given the same partition: the last of them owns it."""
        for member_id in [*self._owned]:
            self.keep(member_id, assignments.get(member_id, set()), self._now_ms)
        owners = {partition: member_id for member_id, owned in self._owned.items() for partition in owned}
        moved: list[TopicPartition] = []
        unowned_ms: dict[TopicPartition, int] = {}
        for member_id, given in assignments.items():
            self._end_freedom(member_id, given, moved, unowned_ms)
            for partition in given:
                owner = owners.get(partition, member_id)
                if owner != member_id:
                    moved.append(partition)
                    self._put_owned(owner, self._owned[owner] - {partition})
            owners.update(dict.fromkeys(given, member_id))
            self._put_owned(member_id, given)
        return moved, unowned_ms

    def _put_owned(self, member_id: str, owned: set[TopicPartition]) -> None:
        if owned:
            self._owned[member_id] = owned
        else:
            self._owned.pop(member_id, None)

    def forget(self, now_ms: int) -> dict[TopicPartition, int]:
        """The group has no members: how long each partition was without an owner until now."""
        self.advance(now_ms)
        unowned_ms = {partition: now_ms - freed_ms for partition, freed_ms in self._freed_ms.items()}
        self._owned.clear()
        self._former.clear()
        self._freed_ms.clear()
        return unowned_ms


@dataclass
class EventClock:
    """The time that passes from event to event. Each start of a broker has a clock of its own, which is not set while
    it runs; from one broker to the next, as when a coordinator moves, there is only the time of day."""

    now_ms: int = 0
    _last: Event | None = None

    @property
    def wall_ahead_ms(self) -> int:
        """What is to be added to `now_ms` for the time of day; 0 before the first event."""
        return 0 if self._last is None else int(self._last["wall_ms"]) - self.now_ms

    def advance(self, event: Event) -> None:
        last, self._last = self._last, event
        if last is None:
            return
        has_same_clock = last["run"] == event["run"] and last["broker"] == event["broker"]
        name = "mono_ms" if has_same_clock else "wall_ms"
        passed_ms = event[name] - last[name]
        if passed_ms > 0:
            self.now_ms += passed_ms


order: Callable[[Event], tuple[int, int, int, int]] = itemgetter("wall_ms", "broker", "run", "seq")
"""The key that puts the events of a group in their order."""


def member_name(event: Event) -> str:
    """A member by its static name, or by its client id and the end of its id, which is what differs between members of
    one client id."""
    member_id: str = event["member_id"]
    return str(event.get("group_instance_id") or f"{event['client_id']}…{member_id[-6:]}")


def cause_of(event: Event) -> str:
    """The cause of a rebalance or a removal, with the one that only the client's own reason shows."""
    cause: str = event["cause"]
    reason = str(event.get("client_reason") or "")
    is_poll_timeout = any(words in reason for words in _POLL_TIMEOUT_WORDS)
    return f"{cause}, {POLL_TIMEOUT}" if is_poll_timeout else cause


def partitions_of(by_topic: Mapping[str, list[int]]) -> set[TopicPartition]:
    return {(topic, partition) for topic, partitions in by_topic.items() for partition in partitions}

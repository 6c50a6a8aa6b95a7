"""What the events of a group (docs/events.md) say beside themselves: the time that passes, and who owns what."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Event: TypeAlias = Mapping[str, Any]
TopicPartition: TypeAlias = tuple[str, int]

POLL_TIMEOUT = "max.poll.interval.ms exceeded"
# Java's consumer and librdkafka give this reason when they leave because the application has not polled.
_POLL_TIMEOUT_WORDS = ("poll timeout", "max.poll.interval")


class Ownership:
    """The owner of each partition, from what members are assigned and what they keep when they rejoin."""

    def __init__(self) -> None:
        self.owners: dict[TopicPartition, str] = {}
        self.incomplete_ms = 0
        """How long at least one partition was without an owner, up to the last call."""
        self._freed_ms: dict[TopicPartition, int] = {}
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
        for partition in [key for key, owner in self.owners.items() if owner == member_id and key not in kept]:
            self._former[partition] = self.owners.pop(partition)
            self._freed_ms.setdefault(partition, now_ms)

    def rename(self, old_member_id: str, new_member_id: str) -> None:
        for owners in (self.owners, self._former):
            owners.update({key: new_member_id for key, owner in owners.items() if owner == old_member_id})

    def give(
        self, assignments: Mapping[str, set[TopicPartition]], now_ms: int
    ) -> tuple[list[TopicPartition], dict[TopicPartition, int]]:
        """A new generation's assignments: the partitions that changed hands, and how long those were without an owner
        that now have one again, in milliseconds."""
        for member_id in {*self.owners.values(), *assignments}:
            self.keep(member_id, assignments.get(member_id, set()), now_ms)
        self.advance(now_ms)
        moved: list[TopicPartition] = []
        unowned_ms: dict[TopicPartition, int] = {}
        for member_id, given in assignments.items():
            for partition in sorted(given):
                former = self.owners.get(partition, self._former.pop(partition, None))
                if former not in (None, member_id):
                    moved.append(partition)
                if partition in self._freed_ms:
                    unowned_ms[partition] = now_ms - self._freed_ms.pop(partition)
                self.owners[partition] = member_id
        return sorted(moved), unowned_ms

    def forget(self, now_ms: int) -> dict[TopicPartition, int]:
        """The group has no members: how long each partition was without an owner until now."""
        self.advance(now_ms)
        unowned_ms = {partition: now_ms - freed_ms for partition, freed_ms in self._freed_ms.items()}
        self.owners.clear()
        self._former.clear()
        self._freed_ms.clear()
        return unowned_ms


@dataclass
class EventClock:
    """The time that passes from event to event. Each start of a broker has a clock of its own, which is not set while
    it runs; from one broker to the next, as when a coordinator moves, there is only the time of day."""

    now_ms: int = 0
    _last: Event | None = None

    def advance(self, event: Event) -> None:
        last, self._last = self._last, event
        if last is None:
            return
        has_same_clock = (last["broker"], last["run"]) == (event["broker"], event["run"])
        name = "mono_ms" if has_same_clock else "wall_ms"
        self.now_ms += max(event[name] - last[name], 0)


def order(event: Event) -> tuple[int, int, int, int]:
    """The key that puts the events of a group in their order."""
    return event["wall_ms"], event["broker"], event["run"], event["seq"]


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

"""The story of a consumer group as text, from the broker's events (docs/events.md): one paragraph per generation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

Event: TypeAlias = Mapping[str, Any]
TopicPartition: TypeAlias = tuple[str, int]


class Ownership:
    """The owner of each partition, from what members are assigned and what they keep when they rejoin."""

    def __init__(self) -> None:
        self.owners: dict[TopicPartition, str] = {}
        self._freed_ms: dict[TopicPartition, int] = {}
        self._former: dict[TopicPartition, str] = {}

    def keep(self, member_id: str, kept: set[TopicPartition], now_ms: int) -> None:
        """The member has no other partitions from now on."""
        for partition in [key for key, owner in self.owners.items() if owner == member_id and key not in kept]:
            self._former[partition] = self.owners.pop(partition)
            self._freed_ms.setdefault(partition, now_ms)

    def rename(self, old_member_id: str, new_member_id: str) -> None:
        for owners in (self.owners, self._former):
            owners.update({key: new_member_id for key, owner in owners.items() if owner == old_member_id})

    def give(self, assignments: Mapping[str, set[TopicPartition]], now_ms: int) -> tuple[list[TopicPartition], int]:
        """A new generation's assignments: the partitions that changed hands, and the longest that one of those given
        was without an owner, in milliseconds."""
        for member_id in {*self.owners.values(), *assignments}:
            self.keep(member_id, assignments.get(member_id, set()), now_ms)
        moved: list[TopicPartition] = []
        longest_ms = 0
        for member_id, given in assignments.items():
            for partition in sorted(given):
                former = self.owners.get(partition, self._former.pop(partition, None))
                if former not in (None, member_id):
                    moved.append(partition)
                longest_ms = max(longest_ms, now_ms - self._freed_ms.pop(partition, now_ms))
                self.owners[partition] = member_id
        return sorted(moved), longest_ms


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


@dataclass
class Story:
    """Gives the lines that an event adds. Events of one group, in their order."""

    _clock: EventClock = field(default_factory=EventClock)
    _rebalance_ms: int | None = None
    _join_phase_ms: int = 0
    _names: dict[str, str] = field(default_factory=dict[str, str])
    _given: dict[str, set[TopicPartition]] = field(default_factory=dict[str, set[TopicPartition]])
    _ownership: Ownership = field(default_factory=Ownership)

    def lines_of(self, event: Event) -> list[str]:
        if "member_id" in event and "client_id" in event:
            self._names[event["member_id"]] = _name(event)
        self._clock.advance(event)
        write = getattr(self, f"_{event['type']}", None)
        return list(write(event)) if write is not None else []

    # Members.

    def _member_joined(self, event: Event) -> Iterator[str]:
        yield _line(event, f"{self._who(event)} joined from {event['client_host']}{_given_reason(event)}")

    def _member_rejoined(self, event: Event) -> Iterator[str]:
        self._ownership.keep(event["member_id"], _partitions(event.get("owned", {})), self._clock.now_ms)
        yield _line(event, f"{self._who(event)} joined again after {_seconds(event['join_phase_ms'])}")

    def _member_removed(self, event: Event) -> Iterator[str]:
        self._ownership.keep(event["member_id"], set(), self._clock.now_ms)
        yield _line(event, f"{self._who(event)} is out: {event['cause']}{_given_reason(event)}")

    def _session_expired(self, event: Event) -> Iterator[str]:
        yield _line(event, f"{self._who(event)} sent no heartbeat for {_seconds(event['session_timeout_ms'])}")

    def _pending_member_dropped(self, event: Event) -> Iterator[str]:
        yield _line(event, f"a new member received its id and did not join: {event['cause']} ({event['member_id']})")

    def _static_member_replaced(self, event: Event) -> Iterator[str]:
        self._ownership.rename(event["old_member_id"], event["new_member_id"])
        yield _line(event, f"static member {event['group_instance_id']} restarted and rejoined with a new member id")

    def _member_synced(self, event: Event) -> Iterator[str]:
        leads = " (leader)" if event["is_leader"] else ""
        yield _line(event, f"{self._who(event)}{leads} synced after {_seconds(event['sync_phase_ms'])}")

    def _member_assigned(self, event: Event) -> Iterator[str]:
        self._given[event["member_id"]] = _partitions(event.get("assigned", {}))
        yield _line(event, f"{self._who(event)} was given {_listed(self._given[event['member_id']])}")

    # Phases.

    def _rebalance_started(self, event: Event) -> Iterator[str]:
        self._rebalance_ms = self._clock.now_ms
        who = f" ({self._who(event)})" if "member_id" in event else ""
        yield ""
        yield _line(
            event, f"REBALANCE of generation {event['generation']}: {event['cause']}{who}{_given_reason(event)}"
        )

    def _join_phase_extended(self, event: Event) -> Iterator[str]:
        yield _line(event, f"the join phase goes on: {event['reason']}")

    def _generation_started(self, event: Event) -> Iterator[str]:
        self._join_phase_ms = event["join_phase_ms"]
        self._given = {}
        text = (
            f"generation {event['generation']} begins after {_seconds(self._join_phase_ms)} of joining: "
            f"{_count(len(event['member_ids']), 'member')}, {event['protocol_name']}, "
            f"leader {self._names.get(event['leader_id'], event['leader_id'])}"
        )
        yield _line(event, text)

    def _generation_completed(self, event: Event) -> Iterator[str]:
        now_ms = self._clock.now_ms
        moved, longest_ms = self._ownership.give(self._given, now_ms)
        took_ms = event["sync_phase_ms"] if self._rebalance_ms is None else now_ms - self._rebalance_ms
        text = (
            f"GENERATION {event['generation']} is stable after {_seconds(took_ms)} "
            f"(joining {_seconds(self._join_phase_ms)}, syncing {_seconds(event['sync_phase_ms'])}); "
            f"{_count(len(moved), 'partition')} moved, without an owner for {_seconds(longest_ms)} at most"
        )
        yield _line(event, text)

    # Errors, and the coordinator.

    def _missing_assignments(self, event: Event) -> Iterator[str]:
        who = ", ".join(str(self._names.get(each, each)) for each in event["member_ids"])
        yield _line(event, f"the leader assigned nothing at all to {who}")

    def _store_failed(self, event: Event) -> Iterator[str]:
        yield _line(event, f"{event['what']} could not be stored: {event['error']}")

    def _group_loaded(self, event: Event) -> Iterator[str]:
        yield _line(event, f"broker {event['broker']} is the coordinator, and found generation {event['generation']}")

    def _state_changed(self, event: Event) -> Iterator[str]:
        if event["to_state"] in ("Empty", "Dead"):
            yield _line(event, f"the group is {event['to_state'].lower()}: {event['reason']}")

    def _dropped(self, event: Event) -> Iterator[str]:
        yield _line(event, f"({event['count']} events of this broker are missing here)")

    def _who(self, event: Event) -> str:
        member_id: str = event["member_id"]
        return self._names.get(member_id, member_id)


def order(event: Event) -> tuple[int, int, int, int]:
    """The key that puts the events of a group in their order."""
    return event["wall_ms"], event["broker"], event["run"], event["seq"]


def _name(event: Event) -> str:
    """A member by its static name, or by the end of its id, which is what differs between members of one client id."""
    member_id: str = event["member_id"]
    return str(event.get("group_instance_id") or f"{event['client_id']}…{member_id[-6:]}")


def _line(event: Event, text: str) -> str:
    moment = datetime.fromtimestamp(event["wall_ms"] / 1000).astimezone()
    return f"{moment:%Y-%m-%d %H:%M:%S}.{event['wall_ms'] % 1000:03}  {text}"


def _given_reason(event: Event) -> str:
    return f", saying: {event['client_reason']}" if event.get("client_reason") else ""


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.3f} s"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _partitions(by_topic: Mapping[str, list[int]]) -> set[TopicPartition]:
    return {(topic, partition) for topic, partitions in by_topic.items() for partition in partitions}


def _listed(partitions: set[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in sorted(partitions)) or "nothing"

"""The story of a consumer group as text, from the broker's events (docs/events.md): one paragraph per generation."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from ottla.cli.operations.group_events import Event, TopicPartition, cause_of, partitions_of
from ottla.cli.operations.rebalances import GroupRebalances


class StoryLine(NamedTuple):
    """`moment` is a time of day with its zone; a line that begins a paragraph or sums one up is a heading."""

    moment: str
    text: str
    is_heading: bool = False


# The events that begin a paragraph, and sum it up.
BEGINNING = "rebalance_started"
HEADINGS = (BEGINNING, "generation_completed")
EMPTY_LINE = StoryLine("", "")


@dataclass
class Story:
    """Gives the lines that an event adds. Events of one group, in their order."""

    _group: GroupRebalances = field(default_factory=lambda: GroupRebalances(""))

    def lines_of(self, event: Event) -> list[StoryLine]:
        self._group.add(event)
        write = getattr(self, f"_{event['type']}", None)
        text = None if write is None else write(event)
        if text is None:
            return []
        line = StoryLine(_moment(event), text, is_heading=event["type"] in HEADINGS)
        return [EMPTY_LINE, line] if event["type"] == BEGINNING else [line]

    # Members.

    def _member_joined(self, event: Event) -> str:
        return f"{self._who(event)} joined from {event['client_host']}{_given_reason(event)}"

    def _member_rejoined(self, event: Event) -> str:
        return f"{self._who(event)} joined again after {_seconds(event['join_phase_ms'])}"

    def _member_removed(self, event: Event) -> str:
        return f"{self._who(event)} is out: {cause_of(event)}{_given_reason(event)}"

    def _session_expired(self, event: Event) -> str:
        return f"{self._who(event)} sent no heartbeat for {_seconds(event['session_timeout_ms'])}"

    def _pending_member_dropped(self, event: Event) -> str:
        return f"a new member received its id and did not join: {event['cause']} ({event['member_id']})"

    def _static_member_replaced(self, event: Event) -> str:
        return f"static member {event['group_instance_id']} restarted and rejoined with a new member id"

    def _member_synced(self, event: Event) -> str:
        leads = " (leader)" if event["is_leader"] else ""
        return f"{self._who(event)}{leads} synced after {_seconds(event['sync_phase_ms'])}"

    def _member_assigned(self, event: Event) -> str:
        return f"{self._who(event)} was given {_listed(partitions_of(event.get('assigned', {})))}"

    # Phases.

    def _rebalance_started(self, event: Event) -> str:
        who = f" ({self._who(event)})" if "member_id" in event else ""
        return f"REBALANCE to generation {event['generation'] + 1}: {cause_of(event)}{who}{_given_reason(event)}"

    def _join_phase_extended(self, event: Event) -> str:
        return f"the join phase goes on: {event['reason']}"

    def _generation_started(self, event: Event) -> str:
        return (
            f"generation {event['generation']} begins after {_seconds(event['join_phase_ms'])} of joining: "
            f"{_count(len(event['member_ids']), 'member')}, {event['protocol_name']}, "
            f"leader {self._group.name_of(event['leader_id'])}"
        )

    def _generation_completed(self, event: Event) -> str:
        group, syncing_ms = self._group, event["sync_phase_ms"]
        rebalance = group.rebalances[-1] if group.rebalances else None
        took_ms, joining = syncing_ms, ""
        if rebalance is not None and rebalance.duration_ms is not None:
            took_ms, joining = rebalance.duration_ms, f"joining {_seconds(rebalance.join_phase_ms or 0)}, "
            if rebalance.waited_for is not None:
                joining += f"{_seconds(rebalance.waited_ms)} of it waiting for {rebalance.waited_for}, "
        return (
            f"GENERATION {event['generation']} is stable after {_seconds(took_ms)} "
            f"({joining}syncing {_seconds(syncing_ms)}); {_count(len(group.moved), 'partition')} moved, "
            f"without an owner for {_seconds(group.longest_unowned_ms)} at most"
        )

    # Errors, and the coordinator.

    def _missing_assignments(self, event: Event) -> str:
        who = ", ".join(str(self._group.name_of(each)) for each in event["member_ids"])
        return f"the leader assigned nothing at all to {who}"

    def _store_failed(self, event: Event) -> str:
        return f"{event['what']} could not be stored: {event['error']}"

    def _group_loaded(self, event: Event) -> str:
        return f"broker {event['broker']} is the coordinator, and found generation {event['generation']}"

    def _state_changed(self, event: Event) -> str | None:
        has_ended = event["to_state"] in ("Empty", "Dead")
        return f"the group is {event['to_state'].lower()}: {event['reason']}" if has_ended else None

    def _dropped(self, event: Event) -> str:
        return f"({event['count']} events of this broker are missing here)"

    def _who(self, event: Event) -> str:
        return self._group.name_of(event["member_id"])


def _moment(event: Event) -> str:
    moment = datetime.fromtimestamp(event["wall_ms"] / 1000).astimezone()
    return moment.isoformat(sep=" ", timespec="milliseconds")


def _given_reason(event: Event) -> str:
    return f", saying: {event['client_reason']}" if event.get("client_reason") else ""


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.3f} s"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _listed(partitions: set[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in sorted(partitions)) or "nothing"

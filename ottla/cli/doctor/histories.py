"""What the events of an Ottla cluster say about its groups (docs/events.md). Other clusters have none."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.cli.client import Client, TopicPartition
from ottla.cli.doctor.sample import GroupHistory
from ottla.cli.failures import ClientError
from ottla.cli.operations.event_history import EVENTS_TOPIC, Span, read_history
from ottla.cli.operations.group_events import Event, member_name, partitions_of
from ottla.protocol.errors import ErrorCode

BEFORE_MS = 3_600_000
TYPES = frozenset(
    {
        b"member_joined", b"member_rejoined", b"member_removed", b"member_assigned", b"rebalance_started",
        b"generation_started", b"generation_completed", b"session_expired", b"state_changed",
    }
)  # fmt: skip


async def group_histories(client: Client, began_ms: int, now_ms: int) -> dict[str, GroupHistory] | None:
    """Of the groups with events in the last hour; None where there is no topic of events. Raises ClientError."""
    (topic,) = (await client.metadata([EVENTS_TOPIC])).topics
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    history = await read_history(client, lambda _key, kind, _value: kind in TYPES, Span(began_ms - BEFORE_MS))
    groups: dict[str, _GroupEvents] = {}
    for event in history.events:
        groups.setdefault(event["group_id"], _GroupEvents(began_ms)).add(event)
    return {group_id: group.history(now_ms) for group_id, group in groups.items()}


@dataclass
class _GroupEvents:
    """The events of one group, one after another."""

    began_ms: int
    started_ms: int | None = None
    generations: int = 0
    expired_ms: int | None = None
    members: dict[str, str] = field(default_factory=dict[str, str])
    missing: set[str] = field(default_factory=set[str])
    owners: dict[TopicPartition, set[str]] = field(default_factory=dict[TopicPartition, set[str]])

    def add(self, event: Event) -> None:
        member_id = event.get("member_id")
        if "client_id" in event and member_id is not None:
            self.members[member_id] = member_name(event)
        match event["type"]:
            case "rebalance_started":
                self.started_ms = event["wall_ms"] if self.started_ms is None else self.started_ms
            case "member_joined" | "member_rejoined":
                self.missing.discard(str(member_id))
            case "member_removed":
                self.missing.discard(str(member_id))
                self.members.pop(str(member_id), None)
            case "generation_started":
                self.generations += event["wall_ms"] >= self.began_ms
                # Who is to rejoin when the next rebalance begins.
                self.missing = {*event["member_ids"]}
            case "generation_completed" | "state_changed":
                self._maybe_end(event)
            case "member_assigned":
                for key in partitions_of(event.get("assigned", {})):
                    self.owners.setdefault(key, set()).add(str(member_id))
            case "session_expired":
                timeout_ms: int = event["session_timeout_ms"]
                self.expired_ms = timeout_ms if self.expired_ms is None else min(self.expired_ms, timeout_ms)
            case _:
                pass

    def _maybe_end(self, event: Event) -> None:
        if event["type"] == "generation_completed" or event["to_state"] in ("Stable", "Empty", "Dead"):
            self.started_ms = None

    def history(self, now_ms: int) -> GroupHistory:
        is_open = self.started_ms is not None
        waited_for = sorted(self.members.get(each, each) for each in self.missing) if is_open else []
        return GroupHistory(
            rebalancing_s=(now_ms - self.started_ms) / 1000 if self.started_ms is not None else None,
            generations=self.generations,
            waits_for=_names(waited_for),
            expired_session_timeout_ms=self.expired_ms,
            owners={key: len(owners) for key, owners in self.owners.items()},
        )


def _names(found: Iterable[str]) -> str | None:
    return ", ".join(found) or None


async def histories_if_any(client: Client, began_ms: int, now_ms: int) -> tuple[dict[str, GroupHistory] | None, str]:
    """With the reason why there are none."""
    try:
        found = await group_histories(client, began_ms, now_ms)
    except ClientError as error:
        return None, str(error)
    return found, "" if found is not None else f"there is no topic {EVENTS_TOPIC}"

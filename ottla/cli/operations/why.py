"""Why groups rebalanced, from the events that the topic `ottla.events` has: for `ottla groups why`."""

from ottla.cli.client import Client
from ottla.cli.failures import ClientError
from ottla.cli.operations.event_history import EVENTS_TOPIC, Span, read_history
from ottla.cli.operations.rebalances import TYPES, GroupRebalances

TYPES_IN_BYTES = frozenset(name.encode() for name in TYPES)
DROPPED = b"dropped"


async def group_rebalances(client: Client, group_id: str, span: Span) -> GroupRebalances:
    """Raises ClientError where there are no events of the group at that time."""
    group_key = group_id.encode("utf-8", "replace")

    def is_wanted(key: bytes | None, kind: bytes, value: bytes) -> bool:
        return kind == DROPPED or (key == group_key and _matters(kind, value))

    history = await read_history(client, is_wanted, span)
    group = GroupRebalances(group_id)
    for event in history.events:
        group.add(event)
    group.end()
    if all(event["type"] == "dropped" for event in history.events):
        when = "" if span == Span() else " of that time"
        raise ClientError(f"there are no events of group {group_id} in {EVENTS_TOPIC}{when}")
    return group


def _matters(kind: bytes, value: bytes) -> bool:
    """Most events are not decoded. Of the states, the one without members matters."""
    return kind in TYPES_IN_BYTES and (kind != b"state_changed" or b'"Empty"' in value or b'"Dead"' in value)


async def all_rebalances(client: Client, span: Span) -> list[GroupRebalances]:
    """Those that were longest without all partitions, first."""
    history = await read_history(client, lambda _, kind, value: kind != DROPPED and _matters(kind, value), span)
    groups: dict[str, GroupRebalances] = {}
    for event in history.events:
        group_id = event["group_id"]
        groups.setdefault(group_id, GroupRebalances(group_id)).add(event)
    for group in groups.values():
        group.end()
    return sorted(groups.values(), key=lambda group: (-group.incomplete_ms, -group.rebalance_ms, group.group_id))

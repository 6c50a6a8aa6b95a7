"""Facts as events: one flat JSON object each.

It begins with an envelope that all have; the fields of its type follow, which carry the names of the fact's attributes.
A field that is null in the fact is left out. What the fields mean is said by the facts, and docs/events.md is generated
from them; a change that breaks readers raises `VERSION`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

from ottla.broker.events import broker_facts
from ottla.broker.events.writing import More, to_json, writer_of
from ottla.coordinator import facts
from ottla.coordinator.facts import Fact as Fact
from ottla.coordinator.facts import MemberAssigned, MemberRejoined
from ottla.coordinator.transactions import facts as transaction_facts
from ottla.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    parse_assignment,
    parse_subscribed_topics,
    parse_subscription,
)
from ottla.protocol.primitives import DecodeError

VERSION: Final = 1
EVENTS_TOPIC: Final = "ottla.events"


def _types(module: ModuleType) -> Iterator[tuple[type[Fact], str]]:
    """The facts of a module that are events."""
    for kind in vars(module).values():
        if isinstance(kind, type) and issubclass(kind, Fact) and kind.event is not None:
            yield kind, kind.event


TYPES: Final[Mapping[type[Fact], str]] = dict((*_types(facts), *_types(broker_facts), *_types(transaction_facts)))
# Counts are distinguished from lists by name, so that every field has one type.
_RENAMED: Final = {"members": "member_count", "offsets": "offset_count", "partitions": "partition_count"}
# Bytes of consumers, which are parsed first, and what the event's key says.
_NOT_WRITTEN: Final = frozenset({"subscription", "assignment", "protocol_type", "coordinator_topic"})


def build_event(fact: Fact, wall_ms: int, mono_ms: int, broker: int, run: int, seq: int) -> bytes:
    """The value of the event's record. `run` and `seq` number the events of one broker between two starts."""
    return _WRITERS[type(fact)](fact, wall_ms, mono_ms, broker, run, seq)


def key_of(fact: Fact, broker: int) -> str:
    """The key of the event's record: its group or transactional id, else its partition or topic, else its broker."""
    return getattr(fact, "group_id", None) or getattr(fact, "key", None) or f"broker-{broker}"


def written_fields(kind: type[Fact]) -> dict[str, str]:
    """The attributes of a fact that are fields of its event, and under which names."""
    names = [field.name for field in fields(kind) if field.name not in _NOT_WRITTEN]
    return {name: _RENAMED.get(name, name) for name in names}


# What consumers say and are given.


@dataclass(frozen=True)
class Parsed:
    """Fields that are read from the bytes of a fact."""

    write: More
    fields: Mapping[str, str]
    """What each means."""


# Members of a group say much the same, and many are given the same again. Longer ones would fill the memory.
_SHORT: Final = 512


def _subscribed(fact: MemberRejoined) -> str:
    """Nothing for groups of other programs than consumers: what their members say is theirs to read."""
    return _understood(fact.protocol_type, fact.subscription, _subscription_fields)


def _assigned(fact: MemberAssigned) -> str:
    return _understood(fact.protocol_type, fact.assignment, _assignment_fields)


def _understood(protocol_type: str, data: bytes, fields_of: Callable[[bytes], dict[str, Any]]) -> str:
    if protocol_type != PROTOCOL_TYPE:
        return ""
    return _encoded_short(data, fields_of) if len(data) <= _SHORT else _encoded(data, fields_of)


def _encoded(data: bytes, fields_of: Callable[[bytes], dict[str, Any]]) -> str:
    try:
        return f",{to_json(fields_of(data))[1:-1]}"
    except DecodeError:
        return ""


_encoded_short = lru_cache(maxsize=1024)(_encoded)


def _subscription_fields(data: bytes) -> dict[str, Any]:
    try:
        subscription = parse_subscription(data)
    except DecodeError:
        # Some clients say a version and end before the fields that it adds.
        return {"topics": list(parse_subscribed_topics(data)), "owned": {}}
    return {"topics": list(subscription.topics), "owned": _by_topic(subscription.owned_partitions)}


def _assignment_fields(data: bytes) -> dict[str, Any]:
    return {"assigned": _by_topic(parse_assignment(data).assigned_partitions)}


def _by_topic(rows: Iterable[Any]) -> dict[str, list[int]]:
    """Topic names and, in order, the partitions of each."""
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row.topic, []).extend(row.partitions)
    return {topic: sorted(partitions) for topic, partitions in found.items()}


PARSED: Final[Mapping[type[Fact], Parsed]] = {
    MemberRejoined: Parsed(
        _subscribed,
        {
            "topics": "The topics that the member subscribes to.",
            "owned": "The partitions that the member keeps during the rebalance, by topic: none if it is eager.",
        },
    ),
    MemberAssigned: Parsed(_assigned, {"assigned": "The partitions that the member was given, by topic."}),
}
_WRITERS: Final = {
    kind: writer_of(
        kind,
        f'"v":{VERSION},"type":"{name}"',
        written_fields(kind),
        PARSED[kind].write if kind in PARSED else None,
    )
    for kind, name in TYPES.items()
}

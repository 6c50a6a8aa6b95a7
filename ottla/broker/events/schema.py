"""Facts as events: one flat JSON object each.

It begins with an envelope that all have; the fields of its type follow, which carry the names of the fact's attributes.
A field that is null in the fact is left out. What the fields mean is written in docs/events.md; a change that breaks
readers raises `VERSION`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any, Final, TypeAlias, get_args

from ottla.broker.events.broker_facts import BrokerFact
from ottla.broker.events.writing import More, to_json, writer_of
from ottla.coordinator.facts import BaseFact, MemberAssigned, MemberRejoined
from ottla.coordinator.facts import Fact as GroupFact
from ottla.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    parse_assignment,
    parse_subscribed_topics,
    parse_subscription,
)
from ottla.protocol.primitives import DecodeError

VERSION: Final = 1
EVENTS_TOPIC: Final = "ottla.events"

Fact: TypeAlias = GroupFact | BrokerFact

TYPES: Final[Mapping[type[BaseFact], str]] = {
    kind: kind.event for kind in (*get_args(GroupFact), *get_args(BrokerFact)) if kind.event is not None
}
# Counts are distinguished from lists by name, so that every field has one type.
_RENAMED: Final = {"members": "member_count", "offsets": "offset_count", "partitions": "partition_count"}
# Bytes of consumers, which are parsed first, and what the event's key says.
_NOT_WRITTEN: Final = frozenset({"subscription", "assignment", "protocol_type", "coordinator_topic"})
_MORE_NAMES: Final[Mapping[type, tuple[str, ...]]] = {
    MemberRejoined: ("topics", "owned"),
    MemberAssigned: ("assigned",),
}


def build_event(fact: Fact, wall_ms: int, mono_ms: int, broker: int, run: int, seq: int) -> bytes:
    """The value of the event's record. `run` and `seq` number the events of one broker between two starts."""
    return _WRITERS[type(fact)](fact, wall_ms, mono_ms, broker, run, seq)


def key_of(fact: Fact, broker: int) -> str:
    """The key of the event's record: its group, else its partition or topic, else its broker."""
    return getattr(fact, "group_id", None) or getattr(fact, "key", None) or f"broker-{broker}"


def field_names(kind: type) -> tuple[str, ...]:
    """Names that events made of this fact can have, beyond the envelope."""
    return (*_names(kind).values(), *_MORE_NAMES.get(kind, ()))


def _names(kind: type) -> dict[str, str]:
    """The attributes that are fields, and as which."""
    names = [field.name for field in fields(kind) if field.name not in _NOT_WRITTEN]
    return {name: _RENAMED.get(name, name) for name in names}


# What consumers say and are given.

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


_MORE: Final[Mapping[type, More]] = {MemberRejoined: _subscribed, MemberAssigned: _assigned}
_WRITERS: Final = {
    kind: writer_of(kind, f'"v":{VERSION},"type":"{name}"', _names(kind), _MORE.get(kind))
    for kind, name in TYPES.items()
}

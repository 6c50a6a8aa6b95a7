"""Facts of the coordinator and of the cluster as the fields of events.

An event is one flat JSON object: an envelope that all have, and the fields of its type, which carry the names of the
fact's attributes. A field that is null in the fact is left out. What the fields mean is written in docs/events.md; a
change that breaks readers raises `VERSION`.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.broker.events import cluster_facts
from ottla.broker.events.cluster_facts import ClusterFact
from ottla.cluster.image import CONSUMER_OFFSETS
from ottla.coordinator import facts
from ottla.coordinator.facts import Fact, MemberAssigned, MemberRejoined
from ottla.protocol.consumer_protocol import PROTOCOL_TYPE, parse_assignment, parse_subscription
from ottla.protocol.errors import ErrorCode
from ottla.protocol.primitives import DecodeError

VERSION: Final = 1
# `json.dumps` would make an encoder for each event.
_encode: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode
EVENTS_TOPIC: Final = "ottla.events"

Fields: TypeAlias = dict[str, Any]
Partitions: TypeAlias = dict[str, list[int]]
"""Topic names and, in order, the partitions of each."""

TYPES: Final[Mapping[type, str]] = {
    facts.StateChanged: "state_changed",
    facts.MemberJoined: "member_joined",
    facts.MemberRejoined: "member_rejoined",
    facts.MemberSynced: "member_synced",
    facts.MemberAssigned: "member_assigned",
    facts.MemberIdHandedOut: "member_id_handed_out",
    facts.PendingMemberDropped: "pending_member_dropped",
    facts.MemberRemoved: "member_removed",
    facts.SessionExpired: "session_expired",
    facts.StaticMemberReplaced: "static_member_replaced",
    facts.StaticMemberRestored: "static_member_restored",
    facts.RebalanceStarted: "rebalance_started",
    facts.JoinPhaseExtended: "join_phase_extended",
    facts.GenerationStarted: "generation_started",
    facts.GenerationCompleted: "generation_completed",
    facts.MissingAssignments: "missing_assignments",
    facts.StoreFailed: "store_failed",
    facts.OffsetsRemoved: "offsets_removed",
    facts.GroupLoaded: "group_loaded",
    facts.RecordsSkipped: "records_skipped",
    cluster_facts.LeaderChanged: "leader_changed",
    cluster_facts.IsrChanged: "isr_changed",
    cluster_facts.FollowerLagSampled: "follower_lag_sampled",
    cluster_facts.CoordinatorMoved: "coordinator_moved",
}
# Counts are told apart from lists by name, so that every field has one type.
_RENAMED: Final = {"members": "member_count", "offsets": "offset_count", "partitions": "partition_count"}
_OPAQUE: Final = frozenset({"subscription", "assignment", "protocol_type"})
_ATTRIBUTES: Final = {
    kind: tuple(
        (field.name, _RENAMED.get(field.name, field.name)) for field in fields(kind) if field.name not in _OPAQUE
    )
    for kind in TYPES
}


class Envelope(NamedTuple):
    """What every event says first. `run` and `seq` number the events of one broker between two starts."""

    type: str
    wall_ms: int
    mono_ms: int
    broker: int
    run: int
    seq: int


def build_event(envelope: Envelope, values: Mapping[str, Any]) -> bytes:
    """The value of the event's record."""
    event_type, wall_ms, mono_ms, broker, run, seq = envelope
    # Put together by hand: types are plain words, and the rest are numbers.
    head = (
        f'{{"v":{VERSION},"type":"{event_type}","wall_ms":{wall_ms},"mono_ms":{mono_ms},'
        f'"broker":{broker},"run":{run},"seq":{seq}'
    )
    body = f",{_encode(values)[1:]}" if values else "}"
    return (head + body).encode("utf-8", "replace")


def key_of(values: Mapping[str, Any], broker: int) -> bytes:
    """The key of the event's record: its group, else its partition or topic, else its broker."""
    group_id, topic, partition = values.get("group_id"), values.get("topic"), values.get("partition")
    if group_id:
        key = group_id
    elif isinstance(partition, int):
        key = f"{topic or CONSUMER_OFFSETS}-{partition}"
    else:
        key = topic or f"broker-{broker}"
    return str(key).encode("utf-8", "replace")


def fields_of(fact: Fact | ClusterFact) -> Fields:
    """The fields of the event that tells `fact`; its type is `TYPES[type(fact)]`."""
    found: Fields = {}
    for attribute, name in _ATTRIBUTES[type(fact)]:
        value = getattr(fact, attribute)
        if isinstance(value, ErrorCode):
            found[name] = value.name
        elif value is not None:
            found[name] = value
    if isinstance(fact, MemberRejoined):
        found |= _subscribed(fact)
    elif isinstance(fact, MemberAssigned):
        found |= _assigned(fact)
    return found


def field_names(event_type: type) -> tuple[str, ...]:
    """Names that events made of this fact can have, beyond the envelope."""
    names = tuple(name for _, name in _ATTRIBUTES[event_type])
    if event_type is MemberRejoined:
        return (*names, "topics", "owned")
    return (*names, "assigned") if event_type is MemberAssigned else names


def _subscribed(fact: MemberRejoined) -> Fields:
    """Nothing for groups of other programs than consumers: what their members say is theirs to read."""
    if fact.protocol_type != PROTOCOL_TYPE:
        return {}
    try:
        subscription = parse_subscription(fact.subscription)
    except DecodeError:
        return {}
    return {"topics": list(subscription.topics), "owned": _by_topic(subscription.owned_partitions)}


def _assigned(fact: MemberAssigned) -> Fields:
    if fact.protocol_type != PROTOCOL_TYPE:
        return {}
    try:
        return {"assigned": _by_topic(parse_assignment(fact.assignment).assigned_partitions)}
    except DecodeError:
        return {}


def _by_topic(rows: Iterable[Any]) -> Partitions:
    found: Partitions = {}
    for row in rows:
        found.setdefault(row.topic, []).extend(row.partitions)
    return {topic: sorted(partitions) for topic, partitions in found.items()}

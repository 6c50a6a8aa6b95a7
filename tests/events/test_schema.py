"""Facts as events."""

import json
from typing import Any

import pytest

from ottla.broker.events.broker_facts import CoordinatorMoved, Dropped, FollowerLagSampled, LeaderChanged
from ottla.broker.events.schema import TYPES, VERSION, build_event, key_of
from ottla.coordinator.classic.states import GroupState
from ottla.coordinator.facts import (
    Cause,
    Fact,
    MemberAssigned,
    MemberRejoined,
    MemberRemoved,
    StateChanged,
    StoreFailed,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tests.fakes.consumer_protocol import build_assignment, build_subscription

ENVELOPE = {"v", "type", "wall_ms", "mono_ms", "broker", "run", "seq"}
OWNED = [TopicPartition(topic="t", partitions=[2, 0]), TopicPartition(topic="u", partitions=[1])]


def written(fact: Fact) -> dict[str, Any]:
    """The fields of the event without its envelope."""
    event = json.loads(build_event(fact, 0, 0, 0, 0, 0))
    return {name: value for name, value in event.items() if name not in ENVELOPE}


def rejoined(protocol_type: str, subscription: bytes) -> MemberRejoined:
    return MemberRejoined(
        group_id="g",
        generation=4,
        member_id="m",
        group_instance_id=None,
        client_id="app",
        client_host="/h",
        client_reason=None,
        protocol_type=protocol_type,
        subscription=subscription,
        join_phase_ms=250,
    )


def test_event_types_differ() -> None:
    assert len(set(TYPES.values())) == len(TYPES)


def test_an_event_is_one_compact_object_with_its_envelope_first() -> None:
    fact = MemberRemoved(
        group_id="g",
        generation=3,
        member_id="m",
        group_instance_id=None,
        client_id="app",
        client_host="/10.0.0.1",
        cause=Cause.MEMBER_LEFT,
        client_reason="going home",
        members=2,
    )

    value = build_event(fact, wall_ms=1000, mono_ms=50, broker=1, run=900, seq=7)

    assert value == (
        b'{"v":1,"type":"member_removed","wall_ms":1000,"mono_ms":50,"broker":1,"run":900,"seq":7,'
        b'"group_id":"g","generation":3,"member_id":"m","client_id":"app","client_host":"/10.0.0.1",'
        b'"cause":"member left","client_reason":"going home","member_count":2}'
    )
    assert json.loads(value)["v"] == VERSION


def test_errors_are_written_by_name() -> None:
    assert (
        written(StoreFailed(group_id="g", generation=1, what="the assignment", error=ErrorCode.NOT_COORDINATOR))[
            "error"
        ]
        == "NOT_COORDINATOR"
    )


def test_causes_and_states_are_written_in_words() -> None:
    removed = MemberRemoved(
        group_id="g",
        generation=3,
        member_id="m",
        group_instance_id=None,
        client_id="app",
        client_host="/h",
        cause=Cause.NOT_REJOINED,
        client_reason=None,
        members=2,
    )
    changed = StateChanged(
        group_id="g", generation=3, from_state=GroupState.STABLE, to_state=GroupState.PREPARING_REBALANCE, reason="why"
    )

    assert written(removed)["cause"] == "did not rejoin in time"
    assert (written(changed)["from_state"], written(changed)["to_state"]) == ("Stable", "PreparingRebalance")


def test_lists_and_booleans_are_written_as_such() -> None:
    fact = FollowerLagSampled(topic="t", follower=2, partition=(0, 1), lag=(5, None), in_sync=(True, False))
    assert written(fact) == {
        "topic": "t",
        "follower": 2,
        "partition": [0, 1],
        "lag": [5, None],
        "in_sync": [True, False],
    }


def test_the_key_is_the_group_or_the_partition_or_the_broker() -> None:
    facts = (
        StateChanged(group_id="g", generation=3, from_state=GroupState.STABLE, to_state=GroupState.DEAD, reason="why"),
        LeaderChanged(
            topic="t", partition=2, leader=1, previous_leader=None, leader_epoch=0, partition_epoch=0, isr=(1,)
        ),
        FollowerLagSampled(topic="t", follower=2, partition=(0,), lag=(5,), in_sync=(True,)),
        CoordinatorMoved(
            coordinator_topic="__consumer_offsets",
            partition=7,
            coordinator=1,
            previous_coordinator=None,
            coordinator_epoch=4,
            groups=0,
            load_ms=3,
        ),
        Dropped(count=3),
    )
    assert [key_of(fact, 6) for fact in facts] == ["g", "t-2", "t", "__consumer_offsets-7", "broker-6"]


def test_partition_without_leader_has_none_in_its_event() -> None:
    fact = LeaderChanged(
        topic="t", partition=2, leader=None, previous_leader=1, leader_epoch=5, partition_epoch=9, isr=(1,)
    )

    assert written(fact) == {
        "topic": "t",
        "partition": 2,
        "previous_leader": 1,
        "leader_epoch": 5,
        "partition_epoch": 9,
        "isr": [1],
    }


def test_owned_partitions_are_written_by_topic() -> None:
    subscription = ConsumerProtocolSubscription(topics=["t", "u"], owned_partitions=OWNED)
    fields = written(rejoined("consumer", build_subscription(subscription, 1)))

    assert (fields["topics"], fields["owned"]) == (["t", "u"], {"t": [0, 2], "u": [1]})
    assert not {"subscription", "protocol_type"} & set(fields)


def test_topics_of_a_short_subscription_are_written() -> None:
    """kafkajs says version 1 and ends before what that adds."""
    subscription = build_subscription(ConsumerProtocolSubscription(topics=["t"]), 0)
    fields = written(rejoined("consumer", b"\0\1" + subscription[2:]))

    assert (fields["topics"], fields["owned"]) == (["t"], {})


def test_assigned_partitions_are_written_by_topic() -> None:
    assignment = build_assignment(ConsumerProtocolAssignment(assigned_partitions=OWNED), 0)
    fields = written(
        MemberAssigned(
            group_id="g",
            generation=4,
            member_id="m",
            group_instance_id="i",
            client_id="app",
            client_host="/h",
            protocol_type="consumer",
            assignment=assignment,
        )
    )

    assert fields["assigned"] == {"t": [0, 2], "u": [1]}


@pytest.mark.parametrize(
    ("protocol_type", "subscription"), [("connect", b"\0\0"), ("consumer", b"\0"), ("consumer", b"")]
)
def test_what_cannot_be_read_is_left_out(protocol_type: str, subscription: bytes) -> None:
    fields = written(rejoined(protocol_type, subscription))
    assert "owned" not in fields
    assert fields["join_phase_ms"] == 250


def test_characters_that_utf8_does_not_have_are_replaced() -> None:
    assert written(StoreFailed(group_id="\udcff", generation=1, what='"\n', error=ErrorCode.NONE))["group_id"] == "?"

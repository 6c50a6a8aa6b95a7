"""Scripted rebalances on a real broker with real clients; the observatory's rows must say what the script did."""

import threading
import time
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import pytest
from kafka.coordinator.assignors.range import RangePartitionAssignor

from benchmarks.raw_client import RawClient, create_topic, joined_member
from ottla.coordinator.facts import Cause, GroupLoaded, MemberJoined
from ottla.coordinator.runtime.hashing import partition_for
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.testing.embedded import BrokerThread, ClusterThread
from tests.clients.group_watch import WAIT_S
from tests.clients.test_group_scenarios import eventually
from tests.pipeline.plays import GROUP, SETTINGS, TOPIC, WITHIN_MS, Play, Tables, Watch, ghost

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SLOW_S = 1.5
SCRIPTED = (Cause.MEMBER_JOINED, Cause.MEMBER_LEFT, Cause.SESSION_EXPIRED)
OFFSETS_PARTITIONS = 5
CLUSTER_SETTINGS = {
    **SETTINGS,
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "ottla.events.replication.factor": "3",
    "broker.session.timeout.ms": "1000",
}


@pytest.fixture
def play() -> Iterator[Play]:
    watch = Watch()
    with BrokerThread(settings=SETTINGS, observers=[watch]) as broker:
        play = Play(broker.bootstrap, watch)
        make_topic(play, replicas=1)
        yield play
        play.close()


@pytest.fixture
def cluster() -> Iterator[tuple[ClusterThread, Play]]:
    watch = Watch()
    with ClusterThread(brokers=3, settings=CLUSTER_SETTINGS, observers=[watch]) as cluster:
        play = Play(cluster.bootstrap, watch)
        make_topic(play, replicas=3)
        yield cluster, play
        play.close()


def client_of(play: Play) -> RawClient:
    return RawClient(int(play.bootstrap.partition(",")[0].rsplit(":", 1)[1]))


def make_topic(play: Play, *, replicas: int) -> None:
    client = client_of(play)
    create_topic(client, TOPIC, partitions=3, replication_factor=replicas)
    client.close()


def test_g08_a_rebalance_that_another_one_overtakes(spark: Any, play: Play) -> None:
    """The first leader takes its time to assign, so that the two others come before it syncs."""
    others_joined = threading.Event()

    class HesitantRange(RangePartitionAssignor):
        @classmethod
        def assign(cls, cluster: object, members: list) -> dict:
            assert others_joined.wait(WAIT_S)
            return super().assign(cluster, members)

    play.member("first", partition_assignment_strategy=[HesitantRange])
    play.watch.wait_until(lambda: play.watch.sizes() == [1])
    play.member("second")
    play.member("third")
    play.watch.wait_until(lambda: len(play.watch.of(MemberJoined)) == 3)
    others_joined.set()
    play.stable_with(3)
    play.shared_out()

    tables = Tables(spark, play)

    tables.check(play.watch)
    assert outline(tables) == [("member joined", 1, "superseded"), ("member joined", 3, "completed")]
    assert tables.owners() == play.owners()
    assert [row["unowned_ms"] for row in tables.ownership] == [None] * 3
    assert {row["client_id"]: row["generations"] for row in tables.sessions} == {"first": 1, "second": 1, "third": 1}


def test_g09_two_that_come_while_the_first_lets_go(spark: Any, play: Play) -> None:
    first = play.member("first")
    play.stable_with(1)
    play.shared_out()
    first.may_let_go.clear()
    play.member("second")
    play.member("third")
    play.watch.wait_until(lambda: len(play.watch.of(MemberJoined)) == 3)
    first.may_let_go.set()
    play.stable_with(3)
    play.shared_out()

    tables = Tables(spark, play)

    tables.check(play.watch)
    assert outline(tables) == [("member joined", 1, "completed"), ("member joined", 3, "completed")]
    assert tables.rebalances[1]["slowest_client_id"] == "first"
    assert tables.owners() == play.owners()
    assert {row["client_id"]: row["generations"] for row in tables.sessions} == {"first": 2, "second": 1, "third": 1}
    assert {(row["partition"], row["client_id"]) for row in tables.ownership if row["previous_owner"] is None} == {
        (0, "first"), (1, "first"), (2, "first"),
    }  # fmt: skip


def test_g10_one_after_the_other(spark: Any, play: Play) -> None:
    for number, name in enumerate(("first", "second", "third"), start=1):
        play.member(name)
        play.stable_with(number)
        play.shared_out()

    tables = Tables(spark, play)

    tables.check(play.watch)
    assert outline(tables) == [("member joined", members, "completed") for members in (1, 2, 3)]
    assert tables.owners() == play.owners()
    assert {row["client_id"]: row["generations"] for row in tables.sessions} == {"first": 3, "second": 2, "third": 1}


def outline(tables: Tables) -> list[tuple[Any, ...]]:
    return [(row["cause"], row["members"], row["outcome"]) for row in tables.rebalances]


def test_members_come_one_is_slow_one_leaves_one_expires(spark: Any, play: Play) -> None:
    first = play.member("first")
    play.stable_with(1)
    second = play.member("second")
    play.stable_with(2)
    ended = threading.Event()
    second.on_partitions_revoked = lambda revoked: ended.wait(SLOW_S)  # type: ignore[method-assign]
    third = play.member("third")
    play.stable_with(3)
    ended.set()
    third.close()
    play.stable_with(2)
    with ghost(play) as process:
        play.stable_with(3)
        process.kill()
        play.stable_with(2)
    first.close()
    play.stable_with(1)
    second.close()
    play.watch.wait_until(lambda: len(play.watch.removals()) == 4)

    tables = Tables(spark, play)

    tables.check(play.watch)
    # A client may have reasons of its own to join again; these are the script's.
    assert [row["cause"] for row in tables.rebalances if row["cause"] in SCRIPTED] == [
        *(Cause.MEMBER_JOINED,) * 3,
        Cause.MEMBER_LEFT,
        Cause.MEMBER_JOINED,
        Cause.SESSION_EXPIRED,
        *(Cause.MEMBER_LEFT,) * 2,
    ]
    slow = max(tables.rebalances, key=lambda row: row["slowest_ms"] or 0)
    assert (slow["slowest_client_id"], slow["slowest_ms"] >= SLOW_S * 1000, slow["members"]) == ("second", True, 3)
    assert {row["client_id"]: row["left_cause"] for row in tables.sessions} == {
        "first": "member left", "second": "member left", "third": "member left", "ghost": "session expired",
    }  # fmt: skip
    assert [row["kind"] for row in tables.stuck] == ["session expired"]
    check_ownership(tables, slow)


def check_ownership(tables: Tables, slow: Any) -> None:
    """At the end no member owns anything; while the second was slow, what the first gave up had no owner."""
    stretches = tables.ownership
    assert all(row["owned_until"] is not None for row in stretches)
    assert {row["partition"] for row in stretches} == {0, 1, 2}
    given = [row for row in stretches if row["generation"] == slow["generation"]]
    assert len(given) == 3
    longest_ms = max(row["unowned_ms"] for row in given)
    assert SLOW_S * 1000 - WITHIN_MS <= longest_ms <= slow["duration_ms"] + WITHIN_MS


def test_a_static_member_restarts_without_a_rebalance(spark: Any, play: Play) -> None:
    for _ in range(2):
        member = play.member("app", group_instance_id="static", session_timeout_ms=300_000)
        play.stable_with(1)
        eventually(lambda member=member: member.owned == {0, 1, 2}, threading.Event(), "the member has its share")
        member.close()

    tables = Tables(spark, play)

    tables.check(play.watch)
    assert outline(tables) == [("member joined", 1, "completed")]
    assert [(row["group_instance_id"], row["left_cause"]) for row in tables.sessions] == [
        ("static", "static member replaced"),
        ("static", None),
    ]
    assert [(row["owner"], row["owned_until"]) for row in tables.ownership] == [("static", None)] * 3


def test_a_member_that_says_why_it_leaves_is_quoted(spark: Any, play: Play) -> None:
    """KIP-800: as version 5 of LeaveGroup carries it."""
    client = client_of(play)
    member_id, _ = joined_member(client, GROUP)
    member = MemberIdentity(member_id=member_id, reason="the shop is closed")
    client.call(LeaveGroupRequest(group_id=GROUP, members=[member]), LeaveGroupResponse, 5)
    client.close()

    tables = Tables(spark, play)

    tables.check(play.watch)
    (session,) = tables.sessions
    assert (session["left_cause"], session["client_reason"]) == ("member left", "the shop is closed")
    assert [(row["cause"], row["client_reason"]) for row in tables.rebalances] == [
        ("member joined", None),
        ("member left", "the shop is closed"),
    ]


def test_group_keeps_its_generation_over_a_killed_coordinator(spark: Any, cluster: tuple[ClusterThread, Play]) -> None:
    brokers, play = cluster
    offsets_partition = partition_for(GROUP, OFFSETS_PARTITIONS)
    play.member("first")
    play.stable_with(1)
    play.shared_out()
    play.events_written()
    first_coordinator = brokers.leader_of("__consumer_offsets", offsets_partition)
    assert first_coordinator is not None
    killed_ms = time.time() * 1000
    brokers.kill(first_coordinator)
    play.watch.wait_until(lambda: bool(play.watch.of(GroupLoaded)))
    loaded_ms = time.time() * 1000
    play.member("second")
    play.stable_with(2)
    play.shared_out()
    second_coordinator = brokers.leader_of("__consumer_offsets", offsets_partition)

    tables = Tables(spark, play)

    tables.check(play.watch)
    assert [(row["generation"], row["members"], row["broker"]) for row in tables.rebalances] == [
        (1, 1, first_coordinator),
        (2, 2, second_coordinator),
    ]
    assert [(row["client_id"], row["left_at"]) for row in tables.sessions] == [("first", None), ("second", None)]
    assert tables.owners() == play.owners()
    terms = [
        row
        for row in tables.leadership
        if (row["topic"], row["partition"]) == ("__consumer_offsets", offsets_partition)
    ]
    before, after = sorted(terms, key=lambda row: row["leader_epoch"])
    assert (before["leader"], after["leader"], after["previous_leader"]) == (
        first_coordinator,
        second_coordinator,
        first_coordinator,
    )
    assert before["led_until"] == after["led_from"]
    assert after["groups"] == 1
    moved_ms = after["led_from"].replace(tzinfo=UTC).timestamp() * 1000
    assert killed_ms - WITHIN_MS <= moved_ms <= moved_ms + after["load_ms"] <= loaded_ms + WITHIN_MS

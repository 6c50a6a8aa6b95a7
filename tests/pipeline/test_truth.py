"""Scripted rebalances on a real broker with real clients; the observatory's rows must tell what the script did."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from benchmarks.raw_client import RawClient, create_topic, joined_member
from ottla.broker.embedding import BrokerThread
from ottla.coordinator.facts import Cause, Fact, GenerationCompleted, GenerationStarted, RebalanceStarted, StateChanged
from ottla.coordinator.states import EMPTY, STABLE
from ottla.pipeline.events import EVENTS_TOPIC
from ottla.pipeline.observatory.tables import tables_of
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tests.clients.group_watch import Member, Timeline
from tests.clients.test_group_scenarios import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TOPIC = "t"
WITHIN_MS = 50
SLOW_S = 1.5
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "ottla.events.enable": "true",
    "ottla.events.flush.interval.ms": "20",
}
SCRIPTED = (Cause.MEMBER_JOINED, Cause.MEMBER_LEFT, Cause.SESSION_EXPIRED)
COMPARED = ("generation", "cause", "members", "outcome")


class Watch(Timeline):
    """The script's own clock on what the broker does: when a rebalance began and when its generation was complete."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.times: list[tuple[float, Fact]] = []

    def __call__(self, fact: Fact) -> None:
        if getattr(fact, "group_id", None) == self.group_id:
            self.times.append((time.monotonic(), fact))
        super().__call__(fact)

    def is_stable_with(self, members: int) -> bool:
        """The group's last word is a stable generation of so many."""
        states, completed = self.of(StateChanged), self.of(GenerationCompleted)
        is_stable = bool(states) and states[-1].to_state is STABLE
        return is_stable and bool(completed) and len(completed[-1].member_ids) == members

    def rebalances(self) -> list[tuple[Any, ...]]:
        """What `COMPARED` names, of each rebalance."""
        started = self.of(RebalanceStarted)
        members = {fact.generation: len(fact.member_ids) for fact in self.of(GenerationStarted)}
        completed = self.stable_generations()
        emptied = [fact.generation for fact in self.of(StateChanged) if fact.to_state is EMPTY]

        def outcome(generation: int) -> str:
            return "completed" if generation in completed else "emptied" if generation in emptied else "superseded"

        generations = [(fact.generation + 1, fact.cause) for fact in started]
        return [(number, cause, members.get(number), outcome(number)) for number, cause in generations]

    def durations_ms(self) -> dict[int, float]:
        """Of each completed rebalance, by its new generation."""
        started: dict[int, float] = {}
        found: dict[int, float] = {}
        for at_s, fact in self.times:
            if isinstance(fact, RebalanceStarted):
                started[fact.generation + 1] = at_s
            elif isinstance(fact, GenerationCompleted):
                found[fact.generation] = (at_s - started[fact.generation]) * 1000
        return found


class Play:
    """A broker, a group, and the members that are on stage."""

    def __init__(self, bootstrap: str, watch: Watch) -> None:
        self.bootstrap = bootstrap
        self.watch = watch
        self.members: list[Member] = []

    def member(self, **settings: object) -> Member:
        member = Member(self.bootstrap, TOPIC, self.watch.group_id, **settings)
        self.members.append(member)
        return member

    def stable_with(self, members: int) -> None:
        self.watch.wait_until(lambda: self.watch.is_stable_with(members))


class Told:
    def __init__(self, spark: Any, bootstrap: str, group: str) -> None:
        frame = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", EVENTS_TOPIC)
            .load()
        )
        rows = [tuple(row) for row in frame.select("topic", "value").collect()]
        records = spark.createDataFrame(rows, "topic STRING, value BINARY")
        self.events = [json.loads(bytes(value)) for _, value in rows]
        frames = tables_of(records, no_progress_ms=60_000)
        self.rows = {
            name: [row for row in frames[name].collect() if row["group_id"] == group]
            for name in ("rebalances", "member_sessions", "partition_ownership", "stuck_members")
        }
        self.rows["rebalances"].sort(key=lambda row: row["started_ms"])
        spark.catalog.clearCache()

    def rebalances(self) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in COMPARED) for row in self.rows["rebalances"]]

    def durations_ms(self) -> dict[int, int]:
        rows = self.rows["rebalances"]
        return {row["generation"]: row["duration_ms"] for row in rows if row["outcome"] == "completed"}


@pytest.fixture
def play() -> Iterator[Play]:
    watch = Watch("g")
    with BrokerThread(settings=SETTINGS, observers=[watch]) as broker:
        client = RawClient(int(broker.bootstrap.rsplit(":", 1)[1]))
        create_topic(client, TOPIC, partitions=3)
        client.close()
        play = Play(broker.bootstrap, watch)
        yield play
        for member in play.members:
            member.close()


def told(spark: Any, play: Play) -> Told:
    """When everything the broker has told of the group is in the topic."""
    found: list[Told] = []
    removals = len(play.watch.removals())

    def is_whole() -> bool:
        found.append(Told(spark, play.bootstrap, "g"))
        events = [event["type"] for event in found[-1].events if event.get("group_id") == "g"]
        return events.count("member_removed") == removals and events.count("generation_completed") == len(
            play.watch.stable_generations()
        )

    eventually(is_whole, threading.Event(), "all events are in the topic")
    assert not any(event["type"] == "dropped" for event in found[-1].events)
    return found[-1]


def check_durations(rows: Told, watch: Watch) -> None:
    truth, measured = watch.durations_ms(), rows.durations_ms()
    assert measured.keys() == truth.keys()
    assert {g: ms for g, ms in measured.items() if abs(ms - truth[g]) > WITHIN_MS} == {}, truth


GHOST = """
import sys
from kafka import KafkaConsumer
settings = dict(bootstrap_servers=sys.argv[1], group_id="g", client_id="ghost", session_timeout_ms=1500)
consumer = KafkaConsumer(sys.argv[2], heartbeat_interval_ms=200, **settings)
while True:
    consumer.poll(timeout_ms=100)
"""


@contextmanager
def ghost(play: Play) -> Iterator[subprocess.Popen[bytes]]:
    """A member in a process of its own, to be killed: it does not say goodbye."""
    process = subprocess.Popen([sys.executable, "-c", GHOST, play.bootstrap, TOPIC])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_members_come_one_is_slow_one_leaves_one_expires(spark: Any, play: Play) -> None:
    first = play.member(client_id="first", heartbeat_interval_ms=100)
    play.stable_with(1)
    second = play.member(client_id="second", heartbeat_interval_ms=100)
    play.stable_with(2)
    ended = threading.Event()
    second.on_partitions_revoked = lambda revoked: ended.wait(SLOW_S)  # type: ignore[method-assign]
    third = play.member(client_id="third", heartbeat_interval_ms=100)
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

    rows = told(spark, play)

    assert rows.rebalances() == play.watch.rebalances()
    # A client may have reasons of its own to join again; these are the script's.
    scripted = [cause for _, cause, _, _ in rows.rebalances() if cause in SCRIPTED]
    assert scripted == [
        *(Cause.MEMBER_JOINED,) * 3,
        Cause.MEMBER_LEFT,
        Cause.MEMBER_JOINED,
        Cause.SESSION_EXPIRED,
        *(Cause.MEMBER_LEFT,) * 2,
    ]
    check_durations(rows, play.watch)
    slow = max(rows.rows["rebalances"], key=lambda row: row["slowest_ms"] or 0)
    assert (slow["slowest_client_id"], slow["slowest_ms"] >= SLOW_S * 1000, slow["members"]) == ("second", True, 3)
    assert {row["client_id"]: row["left_cause"] for row in rows.rows["member_sessions"]} == {
        "first": "member left", "second": "member left", "third": "member left", "ghost": "session expired",
    }  # fmt: skip
    assert [row["kind"] for row in rows.rows["stuck_members"]] == ["session expired"]
    check_ownership(rows, slow)


def check_ownership(rows: Told, slow: Any) -> None:
    """At the end nobody owns anything; while the second dawdled, what the first gave up had no owner for that long."""
    stretches = rows.rows["partition_ownership"]
    assert all(row["owned_until"] is not None for row in stretches)
    assert {row["partition"] for row in stretches} == {0, 1, 2}
    given = [row for row in stretches if row["generation"] == slow["generation"]]
    assert len(given) == 3
    longest_ms = max(row["unowned_ms"] for row in given)
    assert SLOW_S * 1000 - WITHIN_MS <= longest_ms <= slow["duration_ms"] + WITHIN_MS


def test_a_static_member_restarts_without_a_rebalance(spark: Any, play: Play) -> None:
    for _ in range(2):
        member = play.member(client_id="app", group_instance_id="seat", session_timeout_ms=300_000)
        play.stable_with(1)
        eventually(lambda member=member: member.owned == {0, 1, 2}, threading.Event(), "the member has its share")
        member.close()

    rows = told(spark, play)

    assert rows.rebalances() == [(1, Cause.MEMBER_JOINED, 1, "completed")] == play.watch.rebalances()
    sessions = sorted(rows.rows["member_sessions"], key=lambda row: row["joined_at"])
    assert [(row["group_instance_id"], row["left_cause"]) for row in sessions] == [
        ("seat", "static member replaced"),
        ("seat", None),
    ]
    assert [(row["owner"], row["owned_until"]) for row in rows.rows["partition_ownership"]] == [("seat", None)] * 3
    check_durations(rows, play.watch)


def test_a_member_that_says_why_it_leaves_is_quoted(spark: Any, play: Play) -> None:
    """KIP-800: as version 5 of LeaveGroup carries it."""
    client = RawClient(int(play.bootstrap.rsplit(":", 1)[1]))
    member_id, _ = joined_member(client, "g")
    member = MemberIdentity(member_id=member_id, reason="the shop is closed")
    client.call(LeaveGroupRequest(group_id="g", members=[member]), LeaveGroupResponse, 5)
    client.close()

    rows = told(spark, play)

    (session,) = rows.rows["member_sessions"]
    assert (session["left_cause"], session["client_reason"]) == ("member left", "the shop is closed")
    assert [(row["cause"], row["client_reason"]) for row in rows.rows["rebalances"]] == [
        ("member joined", None),
        ("member left", "the shop is closed"),
    ]

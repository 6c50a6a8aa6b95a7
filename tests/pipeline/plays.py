"""Plays for the observatory: members at a real broker, a script that watches them, and the tables made of it all."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ottla.broker.events.schema import TYPES
from ottla.coordinator import facts
from ottla.coordinator.classic.states import EMPTY, STABLE
from ottla.coordinator.facts import Fact, GenerationCompleted, GenerationStarted, RebalanceStarted, StateChanged
from ottla.pipeline.events import EVENTS_TOPIC, events_of, transaction_events_of
from ottla.pipeline.observatory.tables import tables_of
from tests.clients.group_watch import Member, Timeline
from tests.clients.test_group_scenarios import eventually
from tests.pipeline.topics import consume_all

TOPIC = "t"
GROUP = "g"
WITHIN_MS = 50
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "ottla.events.enable": "true",
    "ottla.events.num.partitions": "1",
    "ottla.events.flush.interval.ms": "20",
}
COMPARED = ("generation", "cause", "members", "outcome")
_EVENTS_OF_GROUPS = {name for kind, name in TYPES.items() if kind.__module__ == facts.__name__}


class Watch(Timeline):
    """The script's own clock on what the broker does: when a rebalance began, and when and how it ended."""

    def __init__(self) -> None:
        super().__init__(GROUP)
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
        """By the new generation: until it has its assignment, the next rebalance begins, or the last member is gone."""
        started: dict[int, float] = {}
        ended: dict[int, float] = {}
        for at_s, fact in self.times:
            if isinstance(fact, RebalanceStarted):
                if fact.generation in started:
                    ended.setdefault(fact.generation, at_s)
                started[fact.generation + 1] = at_s
            elif isinstance(fact, GenerationCompleted) or (isinstance(fact, StateChanged) and fact.to_state is EMPTY):
                ended.setdefault(fact.generation, at_s)
        return {generation: (ended[generation] - at_s) * 1000 for generation, at_s in started.items()}

    def types(self) -> Counter[str]:
        """Of the events that the broker owes."""
        return Counter(TYPES[type(fact)] for fact in self.facts if type(fact) in TYPES)


class Play:
    """A broker or a cluster, a group, and the members that are on stage."""

    def __init__(self, bootstrap: str, watch: Watch) -> None:
        self.bootstrap = bootstrap
        self.watch = watch
        self.members: list[Member] = []

    def member(self, client_id: str, **settings: object) -> Member:
        settings = {"heartbeat_interval_ms": 100, **settings}
        member = Member(self.bootstrap, TOPIC, GROUP, client_id=client_id, **settings)
        self.members.append(member)
        return member

    def stable_with(self, members: int) -> None:
        self.watch.wait_until(lambda: self.watch.is_stable_with(members))

    def owners(self) -> dict[int, str]:
        """Who has which partition, as the clients know."""
        return {index: member.consumer.config["client_id"] for member in self.members for index in member.owned}

    def shared_out(self) -> None:
        eventually(lambda: self.owners().keys() == {0, 1, 2}, threading.Event(), "every partition is owned")

    def events_written(self) -> list[bytes]:
        """The events in the topic, when everything that the broker publishes about the group is there."""
        found: list[bytes] = []

        def is_whole() -> bool:
            found[:] = [record.value() for record in consume_all(self, EVENTS_TOPIC, [0])]
            events = [json.loads(value) for value in found]
            of_group = Counter(event["type"] for event in events if event.get("group_id") == GROUP)
            assert not any(event["type"] == "dropped" for event in events)
            return Counter({name: of_group[name] for name in _EVENTS_OF_GROUPS}) == self.watch.types()

        eventually(is_whole, threading.Event(), "all events are in the topic")
        return found

    def close(self) -> None:
        for member in self.members:
            member.close()


class Tables:
    """The observatory's rows, those of groups only of the play's."""

    def __init__(self, spark: Any, play: Play) -> None:
        rows = [(EVENTS_TOPIC, bytearray(value)) for value in play.events_written()]
        records = spark.createDataFrame(rows, "topic STRING, value BINARY")
        frames = tables_of(events_of(records).cache(), transaction_events_of(records), no_progress_ms=60_000)
        found = {name: frame.collect() for name, frame in frames.items() if name not in ("lag", "transactions")}
        spark.catalog.clearCache()
        self.leadership = found.pop("leadership")
        of_group = {name: [row for row in rows if row["group_id"] == GROUP] for name, rows in found.items()}
        self.rebalances = sorted(of_group["rebalances"], key=lambda row: row["started_ms"])
        self.sessions = sorted(of_group["member_sessions"], key=lambda row: row["joined_at"])
        self.ownership, self.stuck = of_group["partition_ownership"], of_group["stuck_members"]

    def owners(self) -> dict[int, str]:
        """At the end."""
        return {row["partition"]: row["client_id"] for row in self.ownership if row["owned_until"] is None}

    def check(self, watch: Watch) -> None:
        """Causes, members and generations are those of the script, and durations nearly."""
        assert [tuple(row[name] for name in COMPARED) for row in self.rebalances] == watch.rebalances()
        truth = watch.durations_ms()
        measured = {row["generation"]: row["duration_ms"] for row in self.rebalances}
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

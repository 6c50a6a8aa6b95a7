"""Events of a cluster: every broker tells what it knows, wherever the partitions of the topic are led (R04, R11)."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import ClusterThread
from ottla.broker.events.schema import EVENTS_TOPIC
from tests.broker.clusters import QUICK_SESSIONS
from tests.clients.group_watch import Member
from tests.cluster_processes import wait_for

Event: TypeAlias = dict[str, Any]

WITHIN_S = 60
SETTINGS = {
    **QUICK_SESSIONS,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 6,
    "ottla.events.enable": True,
    "ottla.events.flush.interval.ms": 20,
    "ottla.events.sample.interval.ms": 200,
}


class Reader:
    """All events so far, in the order that docs/events.md names."""

    def __init__(self, bootstrap: str, partitions: int = 3) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "spark-kafka-reading", "log_level": 0})
        self._consumer.assign([TopicPartition(EVENTS_TOPIC, partition, 0) for partition in range(partitions)])
        # By what docs/events.md says one event is the same as another.
        self._events: dict[tuple[int, int, int], Event] = {}

    def events(self, event_type: str | None = None, **fields: object) -> list[Event]:
        """Those of this type that have these values in their fields."""
        for record in self._consumer.consume(500, 0.2):
            if record.error() is None:
                event = json.loads(record.value())
                self._events[event["broker"], event["run"], event["seq"]] = event
        found = [
            event
            for event in self._events.values()
            if event_type in (None, event["type"]) and all(event.get(name) == fields[name] for name in fields)
        ]
        return sorted(found, key=lambda event: (event["wall_ms"], event["broker"], event["run"], event["seq"]))

    def wait_for(self, event_type: str, accepted: Callable[[Event], bool] = lambda _: True, **fields: object) -> Event:
        """The first such event."""

        def found() -> list[Event]:
            return [event for event in self.events(event_type, **fields) if accepted(event)]

        wait_for(lambda: bool(found()), WITHIN_S, lambda: f"no {event_type} {fields} among {self.events()}")
        return found()[0]

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def reading(cluster: ClusterThread, partitions: int = 3) -> Iterator[Reader]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wait_for(lambda: EVENTS_TOPIC in admin.list_topics(timeout=WITHIN_S).topics, WITHIN_S, lambda: "no topic of events")
    reader = Reader(cluster.bootstrap, partitions)
    try:
        yield reader
    finally:
        reader.close()


def create_topic(cluster: ClusterThread, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 3)])[name].result(WITHIN_S)


def produce(cluster: ClusterThread, topic: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for partition in range(partitions):
        producer.produce(topic, value=b"x", partition=partition)
    assert producer.flush(WITHIN_S) == 0


def test_when_a_coordinator_dies_its_successor_goes_on_telling() -> None:
    with ClusterThread(3, settings=SETTINGS) as cluster, reading(cluster) as reader:
        create_topic(cluster, "t", partitions=3)
        member = Member(cluster.bootstrap, "t", "g", client_id="app")
        try:
            coordinator = reader.wait_for("generation_completed", group_id="g")["broker"]
            cluster.kill(coordinator)
            loaded = reader.wait_for("group_loaded", group_id="g")
            moved = reader.wait_for(
                "coordinator_moved", lambda event: event["groups"] > 0, previous_coordinator=coordinator
            )
        finally:
            member.close()
        removed = reader.wait_for("member_removed", group_id="g")
        generations = [event["generation"] for event in reader.events("generation_completed", group_id="g")]

    assert loaded["broker"] != coordinator
    assert loaded["generation"] in generations
    assert removed["broker"] == loaded["broker"]
    assert (moved["broker"], moved["coordinator"]) == (loaded["broker"], loaded["broker"])
    assert moved["coordinator_epoch"] > 0
    assert moved["load_ms"] >= 0


def test_a_leader_that_dies_and_comes_back_is_published() -> None:
    with ClusterThread(3, settings=SETTINGS) as cluster, reading(cluster) as reader:
        create_topic(cluster, "t", partitions=3)
        for partition in range(3):
            assert "previous_leader" not in reader.wait_for("leader_changed", topic="t", partition=partition)
        dead = cluster.leader_of("t", 0)
        assert dead is not None
        cluster.kill(dead)
        changed = reader.wait_for("leader_changed", topic="t", partition=0, previous_leader=dead)
        shrunk = reader.wait_for("isr_changed", topic="t", left=[dead])
        produce(cluster, "t", partitions=3)
        behind = reader.wait_for("follower_lag_sampled", lambda event: 1 in event["lag"], topic="t", follower=dead)
        cluster.restart(dead)
        grown = reader.wait_for("isr_changed", topic="t", partition=shrunk["partition"], joined=[dead])
        reader.wait_for(
            "follower_lag_sampled",
            lambda event: set(event["lag"]) == {0} and all(event["in_sync"]),
            topic="t",
            follower=dead,
        )
        published = reader.events("leader_changed", topic="t", partition=0, leader_epoch=changed["leader_epoch"])
        of_events = reader.events(topic=EVENTS_TOPIC)

    assert published == [changed], "once, by one broker"
    assert changed["broker"] == changed["leader"] != dead
    assert dead not in changed["isr"]
    assert shrunk["broker"] == shrunk["leader"] != dead
    assert sorted(shrunk["isr"]) == sorted({0, 1, 2} - {dead})
    assert not all(behind["in_sync"])
    assert sorted(grown["isr"]) == sorted([*shrunk["isr"], dead])
    assert of_events == []


def test_a_broker_without_a_partition_of_the_topic_is_heard() -> None:
    settings = {**SETTINGS, "ottla.events.num.partitions": 1}
    with ClusterThread(3, settings=settings) as cluster, reading(cluster, partitions=1) as reader:
        started = {node_id: reader.wait_for("broker_started", broker=node_id) for node_id in cluster.node_ids}
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = admin.list_topics(EVENTS_TOPIC, timeout=WITHIN_S).topics[EVENTS_TOPIC]
        create_topic(cluster, "t", partitions=6)
        for partition in range(6):
            reader.wait_for("leader_changed", topic="t", partition=partition)
        published_by = {event["broker"] for event in reader.events("leader_changed", topic="t")}
        leader = cluster.leader_of(EVENTS_TOPIC, 0)
        led_by_it = [partition for partition in range(6) if cluster.leader_of("t", partition) == leader]
        cluster.kill(leader)
        for partition in led_by_it:
            reader.wait_for("leader_changed", topic="t", partition=partition, previous_leader=leader)

        def numbers() -> dict[int, list[int]]:
            return {node_id: [event["seq"] for event in reader.events(broker=node_id)] for node_id in cluster.node_ids}

        survivors = list(cluster.node_ids)
        # Also what was on its way to the leader that died.
        wait_for(
            lambda: all(seen == list(range(len(seen))) for seen in numbers().values()),
            WITHIN_S,
            lambda: f"events are missing: {numbers()}",
        )

    assert len(topic.partitions[0].replicas) == 3, "as many as there are brokers"
    assert {event["seq"] for event in started.values()} == {0}
    assert published_by == {0, 1, 2}
    assert len(led_by_it) == 2
    assert len(survivors) == 2

"""Events of a cluster: every broker tells what it knows, wherever the partitions of the topic are led."""

import json
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import ClusterThread
from ottla.broker.events.schema import EVENTS_TOPIC
from tests.broker.clusters import QUICK_SESSIONS
from tests.clients.group_watch import Member
from tests.cluster_processes import wait_for

WITHIN_S = 60
SETTINGS = {
    **QUICK_SESSIONS,
    "group.initial.rebalance.delay.ms": 0,
    "ottla.events.enable": True,
    "ottla.events.flush.interval.ms": 20,
}


class Reader:
    """All events of a group so far, in the order that docs/events.md names."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reading", "log_level": 0})
        self._consumer.assign([TopicPartition(EVENTS_TOPIC, partition, 0) for partition in range(3)])
        self._group = group
        self._events: list[dict[str, Any]] = []

    def events(self) -> list[dict[str, Any]]:
        for record in self._consumer.consume(500, 0.2):
            if record.error() is None:
                self._events.append(json.loads(record.value()))
        ours = [event for event in self._events if event.get("group_id") == self._group]
        return sorted(ours, key=lambda event: (event["wall_ms"], event["broker"], event["run"], event["seq"]))

    def brokers_of(self, event_type: str) -> list[int]:
        return [event["broker"] for event in self.events() if event["type"] == event_type]

    def close(self) -> None:
        self._consumer.close()


def test_when_a_coordinator_dies_its_successor_goes_on_telling() -> None:
    with ClusterThread(3, settings=SETTINGS) as cluster:
        create_topic(cluster.bootstrap, "t", partitions=3)
        member = Member(cluster.bootstrap, "t", "g", client_id="app")
        reader = Reader(cluster.bootstrap, "g")
        try:
            wait_for(lambda: bool(reader.brokers_of("generation_completed")), WITHIN_S, lambda: str(reader.events()))
            coordinator = reader.brokers_of("generation_completed")[-1]
            cluster.kill(coordinator)
            wait_for(lambda: bool(reader.brokers_of("group_loaded")), WITHIN_S, lambda: str(reader.events()))
            (successor,) = set(reader.brokers_of("group_loaded"))
        finally:
            member.close()
        wait_for(lambda: "member_removed" in kinds(reader), WITHIN_S, lambda: str(reader.events()))
        events = reader.events()
        reader.close()

    assert successor != coordinator
    loaded = next(event for event in events if event["type"] == "group_loaded")
    completed = [event["generation"] for event in events if event["type"] == "generation_completed"]
    assert loaded["generation"] in completed
    assert events[-1]["broker"] == successor


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 3)])[name].result(WITHIN_S)


def kinds(reader: Reader) -> set[str]:
    return {event["type"] for event in reader.events()}

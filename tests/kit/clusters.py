"""Three brokers of the kit, for its own tests of what goes wrong with several."""

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Producer

from ottla.testing.handle import Kafka, KafkaPartition
from ottla.testing.profile import cluster_settings
from ottla.testing.testbed import Testbed

LAG_MS = 500
SETTINGS = {**cluster_settings(3), "replica.lag.time.max.ms": LAG_MS}


def three_brokers(settings: Mapping[str, Any] = SETTINGS) -> Testbed:
    bed = Testbed(brokers=3, settings=settings, deadline=30)
    bed.start()
    return bed


class Replicated:
    """A topic `orders` with one partition, of which all brokers have a replica, and a record in it."""

    def __init__(self, kafka: Kafka) -> None:
        kafka.create_topic("orders", 1)
        kafka.produce("orders", [b"first"])
        kafka.wait_until_in_sync("orders")
        self.kafka = kafka
        self.partition: KafkaPartition = kafka.partition("orders", 0)
        leader = self.partition.leader
        assert leader is not None
        self.leader = leader
        self.followers = [node_id for node_id in kafka.brokers if node_id != leader]

    def wait_for_isr(self, *node_ids: int) -> None:
        self._wait(lambda: set(self.partition.isr) == set(node_ids), f"the ISR is {node_ids}")

    def wait_for_another_leader(self) -> int:
        self._wait(lambda: self.partition.leader not in (None, self.leader), "another broker leads")
        leader = self.partition.leader
        assert leader is not None
        return leader

    def _wait(self, predicate: Callable[[], object], describe: str) -> None:
        self.kafka.wait(lambda _: predicate(), describe=describe)

    def address(self, node_id: int) -> str:
        """HOST:PORT of one broker."""
        return self.kafka.bootstrap.split(",")[node_id]

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.kafka.records("orders")]


def outcome(kafka: Kafka, value: bytes = b"book", *, topic: str = "orders", **config: Any) -> str:
    """What a producer of librdkafka that does not try again is answered for one record: an error's name, or ok."""
    answers: list[str] = []
    once = {"retries": 0, "log_level": 0, "message.timeout.ms": 20_000}
    producer = Producer(kafka.client_config("producer") | once | config)
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: answers.append(_name(error)))
    assert producer.flush(30) == 0
    return answers[0]


def _name(error: Any) -> str:
    return "ok" if error is None else error.name()

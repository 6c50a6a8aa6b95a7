"""Errors that rules inject are those that librdkafka and Java's client raise (TK19), where they raise what they are
answered; kio reads all of them in test_error_places.py."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import cache
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.kit.java_clients import JavaClients
from tests.kit.members import consumer

WITHIN_S = 20
TRIED_ONCE: dict[str, Any] = {"retries": 0, "log_level": 0, "message.timeout.ms": 20_000}


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    bed = Testbed(deadline=WITHIN_S)
    bed.start()
    yield bed
    bed.stop()


@pytest.fixture(scope="module")
def java() -> Iterator[JavaClients]:
    made = JavaClients()
    yield made
    made.stop()


@pytest.fixture
def kafka(bed: Testbed) -> Iterator[Kafka]:
    handle = Kafka(bed)
    handle.create_topic("orders", partitions=2)
    yield handle
    bed.run(bed.reset())


def admin(kafka: Kafka) -> AdminClient:
    return _admin(kafka.bootstrap)


@cache
def _admin(bootstrap: str) -> AdminClient:
    """It has to live until its answers have come. Resets cut its connections; where librdkafka asks its bootstrap
    servers again then, it may forget a question that waits for a coordinator."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "metadata.recovery.strategy": "none"})


def raised(future: "Future[Any]") -> str:
    """The name of the error that it ends with."""
    with pytest.raises(KafkaException) as caught:
        future.result(WITHIN_S)
    error: KafkaError = caught.value.args[0]
    return str(error.name())


def first(futures: Any) -> "Future[Any]":
    (future,) = futures.values()
    return future


def produced(kafka: Kafka) -> str:
    return _produced(kafka, 0)


def _produced(kafka: Kafka, partition: int) -> str:
    names: list[str] = []
    producer = Producer(kafka.client_config("producer") | TRIED_ONCE)
    producer.produce("orders", b"book", partition=partition, on_delivery=lambda error, _: names.append(_name(error)))
    assert producer.flush(WITHIN_S) == 0
    return names[0]


def _name(error: Any) -> str:
    return "ok" if error is None else str(error.name())


def committed(kafka: Kafka) -> str:
    with consumer(kafka, "shop", "orders", **{"enable.auto.commit": False}) as made:
        made.poll(0)
        with pytest.raises(KafkaException) as caught:
            made.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
    return str(caught.value.args[0].name())


def created(kafka: Kafka) -> str:
    return raised(first(admin(kafka).create_topics([NewTopic("other", 1, 1)])))


def deleted(kafka: Kafka) -> str:
    return raised(first(admin(kafka).delete_topics(["orders"])))


def enlarged(kafka: Kafka) -> str:
    return raised(first(admin(kafka).create_partitions([NewPartitions("orders", 3)])))


def described_configs(kafka: Kafka) -> str:
    return raised(first(admin(kafka).describe_configs([ConfigResource(ResourceType.TOPIC, "orders")])))


def described_groups(kafka: Kafka) -> str:
    return raised(first(admin(kafka).describe_consumer_groups(["shop"])))


def deleted_groups(kafka: Kafka) -> str:
    return raised(first(admin(kafka).delete_consumer_groups(["shop"])))


def listed_offsets(kafka: Kafka) -> str:
    return raised(first(admin(kafka).list_offsets({TopicPartition("orders", 0): OffsetSpec.latest()})))


def deleted_records(kafka: Kafka) -> str:
    return raised(first(admin(kafka).delete_records([TopicPartition("orders", 0, 0)])))


def listed_group_offsets(kafka: Kafka) -> str:
    return raised(first(admin(kafka).list_consumer_group_offsets([ConsumerGroupTopicPartitions("shop")])))


CASES: tuple[tuple[Callable[[Kafka], str], str, str, dict[str, Any]], ...] = (
    (produced, "Produce", "TOPIC_AUTHORIZATION_FAILED", {"topic": "orders", "partition": 0}),
    (produced, "Produce", "INVALID_RECORD", {"topic": "orders"}),
    (committed, "OffsetCommit", "OFFSET_METADATA_TOO_LARGE", {"topic": "orders"}),
    (committed, "OffsetCommit", "GROUP_AUTHORIZATION_FAILED", {"group": "shop"}),
    (created, "CreateTopics", "POLICY_VIOLATION", {"topic": "other"}),
    (deleted, "DeleteTopics", "TOPIC_DELETION_DISABLED", {"topic": "orders"}),
    (enlarged, "CreatePartitions", "INVALID_PARTITIONS", {"topic": "orders"}),
    (described_configs, "DescribeConfigs", "CLUSTER_AUTHORIZATION_FAILED", {}),
    (described_groups, "DescribeGroups", "GROUP_AUTHORIZATION_FAILED", {"group": "shop"}),
    (deleted_groups, "DeleteGroups", "NON_EMPTY_GROUP", {"group": "shop"}),
    (listed_offsets, "ListOffsets", "TOPIC_AUTHORIZATION_FAILED", {"topic": "orders"}),
    (deleted_records, "DeleteRecords", "POLICY_VIOLATION", {"topic": "orders"}),
    (listed_group_offsets, "OffsetFetch", "GROUP_AUTHORIZATION_FAILED", {"group": "shop"}),
)


@pytest.mark.parametrize(("ask", "api", "error", "match"), CASES, ids=[f"{api}-{error}" for _, api, error, _ in CASES])
def test_librdkafka_raises_the_error_of_the_rule(
    kafka: Kafka, ask: Callable[[Kafka], str], api: str, error: str, match: dict[str, Any]
) -> None:
    with kafka.fault(api=api, times="unlimited", do={"error": error}, force=True, **match) as rule:
        assert ask(kafka) == error
        assert rule.hits


def test_other_partition_is_served(kafka: Kafka) -> None:
    with kafka.fault(api="Produce", topic="orders", partition=0, do={"error": "INVALID_RECORD"}):
        assert (_produced(kafka, 1), _produced(kafka, 0), _produced(kafka, 0)) == ("ok", "INVALID_RECORD", "ok")


@pytest.mark.java
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("error", "exception"),
    [
        ("TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationException"),
        ("MESSAGE_TOO_LARGE", "RecordTooLargeException"),
        ("NOT_ENOUGH_REPLICAS", "NotEnoughReplicasException"),
        ("INVALID_RECORD", "InvalidRecordException"),
    ],
)
def test_kafkas_client_raises_the_error_of_the_rule(
    kafka: Kafka, java: JavaClients, error: str, exception: str
) -> None:
    config = kafka.client_config("producer", "java") | {"enable.idempotence": False, "retries": 0}
    with (
        kafka.fault(api="Produce", topic="orders", times="unlimited", do={"error": error}) as rule,
        java.producer("till", config),
    ):
        assert java.send("till", "orders", "book") == f"failed {exception}"
        assert rule.hits

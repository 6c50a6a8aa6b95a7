"""ACLs by the administration clients of librdkafka, kafka-python and Kafka's own `kafka-acls`; and what producers and
consumers of three clients say when they are denied (SEC14)."""

import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import kafka
import kafka.errors
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import admin as confluent
from kafka import admin as kafka_python

from ottla import BrokerThread, ClusterThread
from tests.broker.authorization.world import SECURED
from tests.cli.embedded import Bootstrap
from tests.java_tools import run_tool

WAIT_S = 20
ACLS = "org.apache.kafka.tools.AclCommand"
ALLOW = confluent.AclPermissionType.ALLOW
LITERAL, PREFIXED = confluent.ResourcePatternType.LITERAL, confluent.ResourcePatternType.PREFIXED


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(settings=SECURED | {"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker


def of_librdkafka(broker: Bootstrap, user: str, **more: object) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": "pw",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def of_python(broker: Bootstrap, user: str, **more: object) -> dict[str, object]:
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": "pw",
        **more,
    }


def binding(kind: confluent.ResourceType, name: str, operation: confluent.AclOperation) -> confluent.AclBinding:
    return confluent.AclBinding(kind, name, LITERAL, "User:alice", "*", operation, ALLOW)


def let_alice(broker: Bootstrap, *grants: tuple[confluent.ResourceType, str, confluent.AclOperation]) -> None:
    admin = confluent.AdminClient(of_librdkafka(broker, "admin"))
    for done in admin.create_acls([binding(*grant) for grant in grants]).values():
        done.result(WAIT_S)


def make_topic(broker: BrokerThread) -> None:
    admin = confluent.AdminClient(of_librdkafka(broker, "admin"))
    admin.create_topics([confluent.NewTopic("orders", 1, 1)])["orders"].result(WAIT_S)


TOPIC, GROUP = confluent.ResourceType.TOPIC, confluent.ResourceType.GROUP
READ, WRITE = confluent.AclOperation.READ, confluent.AclOperation.WRITE


def test_confluent_kafka_creates_describes_and_deletes_acls(broker: BrokerThread) -> None:
    admin = confluent.AdminClient(of_librdkafka(broker, "admin"))
    let_alice(broker, (TOPIC, "orders", READ), (TOPIC, "orders", WRITE), (GROUP, "crew", READ))
    every = confluent.AclBindingFilter(
        confluent.ResourceType.ANY,
        None,
        confluent.ResourcePatternType.ANY,
        None,
        None,
        confluent.AclOperation.ANY,
        confluent.AclPermissionType.ANY,
    )
    found = admin.describe_acls(every).result(WAIT_S)
    of_topic = confluent.AclBindingFilter(
        TOPIC,
        "orders",
        confluent.ResourcePatternType.MATCH,
        None,
        None,
        confluent.AclOperation.ANY,
        confluent.AclPermissionType.ANY,
    )
    deleted = admin.delete_acls([of_topic])[of_topic].result(WAIT_S)
    left = admin.describe_acls(every).result(WAIT_S)
    alices = confluent.AdminClient(of_librdkafka(broker, "alice"))
    own = binding(TOPIC, "bills", READ)
    with pytest.raises(KafkaException) as raised:
        alices.create_acls([own])[own].result(WAIT_S)

    assert sorted((each.name, each.operation.name) for each in found) == [
        ("crew", "READ"),
        ("orders", "READ"),
        ("orders", "WRITE"),
    ]
    assert len(deleted) == 2
    assert [each.name for each in left] == ["crew"]
    assert raised.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_kafka_python_creates_describes_and_deletes_acls(broker: BrokerThread) -> None:
    admin = kafka_python.KafkaAdminClient(**of_python(broker, "admin"))
    prefixed = kafka_python.ACLResourcePatternType.PREFIXED
    pattern = kafka_python.ResourcePattern(kafka_python.ResourceType.TOPIC, "or", prefixed)
    acl = kafka_python.ACL(
        "User:alice", "*", kafka_python.ACLOperation.READ, kafka_python.ACLPermissionType.ALLOW, pattern
    )
    created = admin.create_acls([acl])
    wanted = kafka_python.ACLFilter(
        None,
        None,
        kafka_python.ACLOperation.ANY,
        kafka_python.ACLPermissionType.ANY,
        kafka_python.ResourcePatternFilter(
            kafka_python.ResourceType.TOPIC, "orders", kafka_python.ACLResourcePatternType.MATCH
        ),
    )
    found, _ = admin.describe_acls(wanted)
    deleted = admin.delete_acls([wanted])
    left, _ = admin.describe_acls(wanted)
    admin.close()

    assert (created["succeeded"], created["failed"]) == ([acl], [])
    assert found == [acl]
    assert [each for _, matched, _ in deleted for each in matched] == [acl]
    assert left == []


@pytest.mark.java
@pytest.mark.timeout(300)
def test_kafka_acls_grants_a_producer_and_a_consumer(broker: BrokerThread, tmp_path: Path) -> None:
    properties = tmp_path / "admin.properties"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={login} username="admin" password="pw";\n'
    )
    common = ("--bootstrap-server", broker.bootstrap, "--command-config", properties)
    alice = ("--allow-principal", "User:alice", "--topic", "orders")
    run_tool(ACLS, *common, "--add", *alice, "--producer")
    run_tool(ACLS, *common, "--add", *alice, "--consumer", "--group", "crew")
    run_tool(ACLS, *common, "--add", "--deny-principal", "User:bob", "--operation", "ALL", "--cluster")
    listed = run_tool(ACLS, *common, "--list")
    removed = run_tool(ACLS, *common, "--remove", "--cluster", "--force")
    make_topic(broker)

    for text in (
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)`",
        "(principal=User:alice, host=*, operation=CREATE, permissionType=ALLOW)",
        "(principal=User:bob, host=*, operation=ALL, permissionType=DENY)",
        "ResourcePattern(resourceType=GROUP, name=crew, patternType=LITERAL)",
    ):
        assert text in listed
    assert "User:bob" not in removed
    producer = kafka.KafkaProducer(**of_python(broker, "alice"))
    assert producer.send("orders", b"x").get(WAIT_S).offset == 0
    producer.close()
    consumer = confluent_kafka.Consumer(of_librdkafka(broker, "alice", group_id="crew", auto_offset_reset="earliest"))
    consumer.subscribe(["orders"])
    assert [each.value() for each in consumer.consume(1, WAIT_S)] == [b"x"]
    consumer.close()


def test_confluent_kafka_says_what_is_denied(broker: BrokerThread) -> None:
    make_topic(broker)
    let_alice(broker, (TOPIC, "orders", READ))
    failed: list[int] = []
    producer = confluent_kafka.Producer(of_librdkafka(broker, "alice"))
    producer.produce("orders", b"x", on_delivery=lambda error, _: failed.append(error.code()))
    producer.flush(WAIT_S)
    consumer = confluent_kafka.Consumer(of_librdkafka(broker, "alice", group_id="crew"))
    consumer.subscribe(["orders"])
    message = consumer.poll(WAIT_S)
    consumer.close()

    assert failed == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    assert message is not None
    assert message.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_kafka_python_says_what_is_denied(broker: BrokerThread) -> None:
    make_topic(broker)
    let_alice(broker, (TOPIC, "orders", READ))
    producer = kafka.KafkaProducer(**of_python(broker, "alice", enable_idempotence=False))
    with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
        producer.send("orders", b"x").get(WAIT_S)
    producer.close()
    consumer = kafka.KafkaConsumer("orders", **of_python(broker, "alice", group_id="crew"))
    with pytest.raises(kafka.errors.GroupAuthorizationFailedError):
        consumer.poll(WAIT_S * 1000)
    consumer.close()


async def read_one(consumer: AIOKafkaConsumer) -> None:
    await consumer.start()
    await consumer.getone()


async def test_aiokafka_says_what_is_denied(broker: BrokerThread) -> None:
    make_topic(broker)
    let_alice(broker, (TOPIC, "orders", READ))
    producer = AIOKafkaProducer(**of_python(broker, "alice"))
    await producer.start()
    with pytest.raises(TopicAuthorizationFailedError):
        await producer.send_and_wait("orders", b"x")
    await producer.stop()
    consumer = AIOKafkaConsumer("orders", **of_python(broker, "alice", group_id="crew"))
    with pytest.raises(GroupAuthorizationFailedError):
        await read_one(consumer)
    await consumer.stop()


def test_a_right_that_is_revoked_ends_a_consumer(broker: BrokerThread) -> None:
    """SEC15: in its fetch session."""
    make_topic(broker)
    let_alice(broker, (TOPIC, "orders", READ), (TOPIC, "orders", WRITE), (GROUP, "crew", READ))
    producer = confluent_kafka.Producer(of_librdkafka(broker, "alice"))
    producer.produce("orders", b"x")
    assert producer.flush(WAIT_S) == 0
    consumer = confluent_kafka.Consumer(of_librdkafka(broker, "alice", group_id="crew", auto_offset_reset="earliest"))
    consumer.subscribe(["orders"])
    assert [each.value() for each in consumer.consume(1, WAIT_S)] == [b"x"]
    admin = confluent.AdminClient(of_librdkafka(broker, "admin"))
    read = confluent.AclBindingFilter(TOPIC, "orders", LITERAL, "User:alice", "*", READ, ALLOW)
    assert len(admin.delete_acls([read])[read].result(WAIT_S)) == 1
    refused = consumer.poll(WAIT_S)
    consumer.close()

    assert refused is not None
    assert refused.error().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_brokers_work_together_and_each_authorizes() -> None:
    """SEC08: followers, transactions and their markers go by the principal of the brokers, a super user."""
    settings = {
        name.replace(".inside.", ".plaintext."): value for name, value in SECURED.items() if name != "listeners"
    }
    settings |= {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT", "min.insync.replicas": "3"}
    with ClusterThread(brokers=3, settings=settings) as cluster:
        admin = confluent.AdminClient(of_librdkafka(cluster, "admin"))
        admin.create_topics([confluent.NewTopic("orders", 3, 3)])["orders"].result(WAIT_S)
        producer = confluent_kafka.Producer(of_librdkafka(cluster, "alice", transactional_id="pay"))
        with pytest.raises(KafkaException) as raised:
            producer.init_transactions(WAIT_S)
        let_alice(
            cluster,
            (TOPIC, "orders", WRITE),
            (TOPIC, "orders", READ),
            (GROUP, "crew", READ),
            (confluent.ResourceType.TRANSACTIONAL_ID, "pay", WRITE),
        )
        wait_for_all(cluster)
        producer = confluent_kafka.Producer(of_librdkafka(cluster, "alice", transactional_id="pay"))
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        for partition in range(3):
            producer.produce("orders", b"x", partition=partition)
        producer.commit_transaction(WAIT_S)
        reading = of_librdkafka(cluster, "alice", group_id="crew", auto_offset_reset="earliest")
        consumer = confluent_kafka.Consumer(reading)
        consumer.subscribe(["orders"])
        taken = [each.value() for each in consumer.consume(3, WAIT_S)]
        consumer.close()

    assert raised.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert taken == [b"x"] * 3


def wait_for_all(cluster: ClusterThread) -> None:
    """Until each broker has heard of the ACLs."""
    every = confluent.AclBindingFilter(
        confluent.ResourceType.ANY,
        None,
        confluent.ResourcePatternType.ANY,
        None,
        None,
        confluent.AclOperation.ANY,
        confluent.AclPermissionType.ANY,
    )
    for address in cluster.bootstrap.split(","):
        admin = confluent.AdminClient(of_librdkafka(cluster, "admin", bootstrap_servers=address))
        until = time.monotonic() + WAIT_S
        while len(admin.describe_acls(every).result(WAIT_S)) < 4:
            assert time.monotonic() < until

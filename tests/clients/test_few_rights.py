"""What Kafka's tools and clients see when they log in as somebody with few rights: lists are shorter, without an error,
and what is named is refused (SEC16, SEC19)."""

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import admin as confluent
from kafka import KafkaConsumer

from ottla import BrokerThread
from tests.broker.authorization.world import LOGIN, SECURED
from tests.clients.test_acls import GROUP, READ, TOPIC, WAIT_S, WRITE, let_alice, of_librdkafka, of_python
from tests.clients.test_kafka_tools import GROUPS, TOOLS, Tool, run_all
from tests.waiting import wait_for

TRANSACTIONAL_ID = confluent.ResourceType.TRANSACTIONAL_ID
DESCRIBE = confluent.AclOperation.DESCRIBE
SETTINGS = SECURED | {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
AS_ALICE = "--bootstrap-server SERVER --command-config FILES/alice.properties"
# Kafka's tool for groups fails where it is refused, and names what refuses it.
ASKED = [
    Tool("topics", TOOLS + "TopicCommand", f"{AS_ALICE} --list", "orders"),
    Tool("topic of others", TOOLS + "TopicCommand", f"{AS_ALICE} --describe --topic secret", "does not exist", 1),
    Tool("groups", GROUPS + "ConsumerGroupCommand", f"{AS_ALICE} --list", "crew"),
    Tool("group", GROUPS + "ConsumerGroupCommand", f"{AS_ALICE} --describe --group crew", "orders"),
    Tool(
        "group of others",
        GROUPS + "ConsumerGroupCommand",
        f"{AS_ALICE} --describe --group theirs",
        "GroupAuthorizationException",
        None,
    ),
    Tool("transactions", TOOLS + "TransactionsCommand", f"{AS_ALICE} list", "hers"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    """With topics, groups and transactional ids of alice and of others."""
    with BrokerThread(settings=SETTINGS) as broker:
        admin = confluent.AdminClient(of_librdkafka(broker, "admin"))
        for done in admin.create_topics([confluent.NewTopic(name, 1, 1) for name in ("orders", "secret")]).values():
            done.result(WAIT_S)
        let_alice(
            broker,
            (TOPIC, "orders", READ),
            (TOPIC, "orders", WRITE),
            (GROUP, "crew", READ),
            (TRANSACTIONAL_ID, "hers", WRITE),
        )
        transact(of_librdkafka(broker, "alice", transactional_id="hers"), "orders")
        transact(of_librdkafka(broker, "admin", transactional_id="others"), "secret")
        read_one(of_librdkafka(broker, "alice", group_id="crew"), "orders")
        read_one(of_librdkafka(broker, "admin", group_id="theirs"), "secret")
        yield broker


def transact(config: dict[str, object], topic: str) -> None:
    producer = confluent_kafka.Producer(config)
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    producer.commit_transaction(WAIT_S)


def read_one(config: dict[str, object], topic: str) -> None:
    consumer = confluent_kafka.Consumer(config | {"auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([topic])
    assert [each.value() for each in consumer.consume(1, WAIT_S)] == [b"x"]
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.mark.java
@pytest.mark.timeout(300)
def test_lists_of_kafkas_tools_have_what_may_be_seen(broker: BrokerThread, tmp_path: Path) -> None:
    (tmp_path / "alice.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={LOGIN} username="alice" password="pw";\n'
    )
    outcomes = run_all(broker, ASKED, tmp_path)

    for tool, (status, printed) in zip(ASKED, outcomes, strict=True):
        assert tool.says in printed, f"{tool.script}: {printed[-2000:]}"
        assert tool.status in (None, status), f"{tool.script}: {printed[-2000:]}"
        if tool.status == 0:
            assert "Exception" not in printed, f"{tool.script}: {printed[-2000:]}"
            assert not {"secret", "theirs", "others"} & {*printed.split()}, f"{tool.script}: {printed}"


def test_patterns_match_what_may_be_seen(broker: BrokerThread) -> None:
    by_confluent = confluent_kafka.Consumer(
        of_librdkafka(broker, "alice", group_id="crew", auto_offset_reset="earliest", enable_auto_commit=False)
    )
    by_confluent.subscribe(["^.*"])
    heard = []

    def is_assigned() -> bool:
        heard.append(by_confluent.poll(0.1))
        return bool(by_confluent.assignment())

    wait_for(is_assigned, WAIT_S, "no partition was assigned")
    assigned = {each.topic for each in by_confluent.assignment()}
    by_confluent.close()
    by_python = KafkaConsumer(**of_python(broker, "alice", group_id="crew", auto_offset_reset="earliest"))
    by_python.subscribe(pattern=".*")

    def is_subscribed() -> bool:
        by_python.poll(100)
        return bool(by_python.assignment())

    wait_for(is_subscribed, WAIT_S, "no partition was assigned")
    subscribed = by_python.subscription()
    by_python.close()

    assert [each.error() for each in heard if each is not None and each.error() is not None] == []
    assert assigned == {"orders"}
    assert subscribed == {"orders"}


def test_lists_of_an_admin_client_have_what_may_be_seen(broker: BrokerThread) -> None:
    admin = confluent.AdminClient(of_librdkafka(broker, "alice"))
    topics = admin.list_topics(timeout=WAIT_S).topics
    groups = admin.list_consumer_groups().result(WAIT_S).valid
    described = admin.describe_consumer_groups(["crew", "theirs"])
    named = admin.list_topics("secret", timeout=WAIT_S).topics["secret"].error

    assert set(topics) == {"orders"}
    assert {each.group_id for each in groups} == {"crew"}
    assert described["crew"].result(WAIT_S).group_id == "crew"
    with pytest.raises(KafkaException) as raised:
        described["theirs"].result(WAIT_S)
    assert raised.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    assert named is not None
    assert named.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_one_topic_to_write_to_is_enough_for_idempotence(broker: BrokerThread) -> None:
    """SEC19: without IDEMPOTENT_WRITE on the cluster; a foreign transactional id is refused."""
    placed: list[object] = []
    producer = confluent_kafka.Producer(of_librdkafka(broker, "alice", enable_idempotence=True))
    producer.produce("orders", b"y", on_delivery=lambda error, _: placed.append(error))
    assert producer.flush(WAIT_S) == 0
    foreign = confluent_kafka.Producer(of_librdkafka(broker, "alice", transactional_id="others"))
    with pytest.raises(KafkaException) as raised:
        foreign.init_transactions(WAIT_S)

    assert placed == [None]
    assert raised.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

"""confluent-kafka (librdkafka): produce, consume, groups, administration."""

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from tests.served import ServedBroker

WAIT_S = 20


def producer(broker: ServedBroker, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, **{k.replace("_", "."): v for k, v in settings.items()}})


def consumer(broker: ServedBroker, group: str, **settings: object) -> Consumer:
    defaults = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 6000}
    named = {k.replace("_", "."): v for k, v in settings.items()}
    return Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, **defaults, **named})


def create_topic(broker: ServedBroker, name: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = NewTopic(name, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()})
    admin.create_topics([topic])[name].result(WAIT_S)


def produced(broker: ServedBroker, topic: str, values: list[str], **settings: object) -> list[Message]:
    """Produces the values and returns the acknowledged messages; raises on any that failed."""
    acknowledged: list[Message] = []
    sender = producer(broker, **settings)

    def delivered(error: object, message: Message) -> None:
        assert error is None, error
        acknowledged.append(message)

    for value in values:
        sender.produce(topic, value=value, key=value, on_delivery=delivered)
    assert sender.flush(WAIT_S) == 0
    return acknowledged


def consumed(reader: Consumer, count: int) -> list[Message]:
    messages: list[Message] = []
    while len(messages) < count:
        batch = reader.consume(count - len(messages), timeout=WAIT_S)
        assert batch, f"only {len(messages)} of {count} messages came"
        for message in batch:
            assert message.error() is None, message.error()
        messages += batch
    return messages


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_keys_values_headers_and_timestamps_come_back(broker: ServedBroker, codec: str) -> None:
    create_topic(broker, "t")
    sender = producer(broker, compression_type=codec)
    for i in range(200):
        sender.produce("t", key=f"k{i}", value=f"v{i}" * 20, headers=[("h", b"x"), ("n", None)], timestamp=1000 + i)
    assert sender.flush(WAIT_S) == 0

    reader = consumer(broker, "g")
    reader.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    messages = consumed(reader, 200)
    reader.close()

    assert [m.offset() for m in messages] == list(range(200))
    assert [m.key() for m in messages] == [f"k{i}".encode() for i in range(200)]
    assert messages[7].value() == b"v7" * 20
    assert messages[7].headers() == [("h", b"x"), ("n", None)]
    assert messages[7].timestamp()[1] == 1007


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_setting_delivers(broker: ServedBroker, acks: str) -> None:
    """R08, as far as one broker shows it."""
    create_topic(broker, "t")
    produced(broker, "t", ["a", "b"], acks=acks)

    reader = consumer(broker, "g")
    reader.subscribe(["t"])

    assert [m.value() for m in consumed(reader, 2)] == [b"a", b"b"]
    reader.close()


def test_an_idempotent_producer_gets_consecutive_offsets(broker: ServedBroker) -> None:
    create_topic(broker, "t")

    acknowledged = produced(broker, "t", [str(i) for i in range(1000)], enable_idempotence=True)

    assert [m.offset() for m in acknowledged] == list(range(1000))


def test_committed_offsets_are_found_by_the_next_consumer(broker: ServedBroker) -> None:
    """G27."""
    create_topic(broker, "t")
    produced(broker, "t", ["a", "b", "c"])
    first = consumer(broker, "g")
    first.subscribe(["t"])
    consumed(first, 2)
    first.commit(offsets=[TopicPartition("t", 0, 2, "two read")], asynchronous=False)
    first.close()

    second = consumer(broker, "g")
    second.subscribe(["t"])

    assert consumed(second, 1)[0].value() == b"c"
    assert second.committed([TopicPartition("t", 0)], WAIT_S)[0].metadata == "two read"
    second.close()


def test_offsets_are_looked_up_by_timestamp(broker: ServedBroker) -> None:
    create_topic(broker, "t")
    sender = producer(broker)
    for i in range(10):
        sender.produce("t", value=str(i), timestamp=1_000_000 + 1000 * i)
        sender.flush(WAIT_S)

    reader = consumer(broker, "g")
    found = reader.offsets_for_times([TopicPartition("t", 0, 1_004_500), TopicPartition("t", 0, 2_000_000)][:1], WAIT_S)
    low, high = reader.get_watermark_offsets(TopicPartition("t", 0), WAIT_S)
    reader.close()

    assert found[0].offset == 5
    assert (low, high) == (0, 10)


def test_topics_are_described_altered_and_deleted(broker: ServedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    create_topic(broker, "t", 2, retention_ms="60000")
    admin.create_partitions([NewPartitions("t", 5)])["t"].result(WAIT_S)
    resource = ConfigResource(ResourceType.TOPIC, "t")

    config = admin.describe_configs([resource])[resource].result(WAIT_S)

    assert len(admin.list_topics("t", WAIT_S).topics["t"].partitions) == 5
    assert config["retention.ms"].value == "60000"
    admin.delete_topics(["t"])["t"].result(WAIT_S)
    assert "t" not in admin.list_topics(timeout=WAIT_S).topics


def test_groups_are_listed_described_and_deleted(broker: ServedBroker) -> None:
    """G01."""
    create_topic(broker, "t")
    produced(broker, "t", ["a"])
    reader = consumer(broker, "g", client_id="me", group_instance_id="static")
    reader.subscribe(["t"])
    consumed(reader, 1)
    reader.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    listed = admin.list_consumer_groups().result(WAIT_S).valid
    described = admin.describe_consumer_groups(["g"])["g"].result(WAIT_S)

    assert [(g.group_id, g.state.name) for g in listed] == [("g", "STABLE")]
    (member,) = described.members
    assert (member.client_id, member.group_instance_id) == ("me", "static")
    assert [(p.topic, p.partition) for p in member.assignment.topic_partitions] == [("t", 0)]
    reader.close()
    reader = consumer(broker, "g2")
    reader.subscribe(["t"])
    consumed(reader, 1)
    reader.commit(asynchronous=False)
    reader.close()
    admin.delete_consumer_groups(["g2"])["g2"].result(WAIT_S)
    assert "g2" not in {g.group_id for g in admin.list_consumer_groups().result(WAIT_S).valid}


def test_everything_is_found_again_after_a_kill(broker: ServedBroker) -> None:
    create_topic(broker, "t", 3)
    acknowledged = produced(broker, "t", [str(i) for i in range(300)])
    reader = consumer(broker, "g")
    reader.subscribe(["t"])
    consumed(reader, 300)
    reader.commit(asynchronous=False)
    reader.close()

    broker.kill()
    broker.start()

    reader = consumer(broker, "g")
    positions = reader.committed([TopicPartition("t", p) for p in range(3)], WAIT_S)
    reader.assign([TopicPartition("t", p, OFFSET_BEGINNING) for p in range(3)])
    again = consumed(reader, 300)
    reader.close()
    assert sum(p.offset for p in positions) == 300
    placed = {(m.partition(), m.offset(), m.value()) for m in acknowledged}
    assert {(m.partition(), m.offset(), m.value()) for m in again} == placed

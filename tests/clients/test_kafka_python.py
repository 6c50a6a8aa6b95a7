"""kafka-python: produce, consume, groups with callbacks, administration."""

import kafka.codec
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata

from tests.served import ServedBroker

WAIT_S = 20


def consumer(broker: ServedBroker, *topics: str, **settings: object) -> KafkaConsumer:
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "consumer_timeout_ms": WAIT_S * 1000}
    return KafkaConsumer(*topics, bootstrap_servers=broker.bootstrap, **{**defaults, **settings})


def take(reader: KafkaConsumer, count: int) -> list:
    taken = []
    for message in reader:
        taken.append(message)
        if len(taken) == count:
            break
    return taken


def produce(broker: ServedBroker, topic: str, values: list[bytes], **settings: object) -> list:
    sender = KafkaProducer(bootstrap_servers=broker.bootstrap, **settings)
    futures = [sender.send(topic, value=value, key=value) for value in values]
    placed = [future.get(WAIT_S) for future in futures]
    sender.close()
    return placed


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_a_round_trip(broker: ServedBroker, codec: str | None) -> None:
    if codec is not None and not getattr(kafka.codec, f"has_{codec}")():
        pytest.skip(f"kafka-python has no {codec} library here")
    values = [f"value {i} ".encode() * 10 for i in range(100)]

    placed = produce(broker, "t", values, compression_type=codec, linger_ms=5)
    reader = consumer(broker, "t")
    messages = take(reader, 100)
    reader.close()

    assert [p.offset for p in placed] == list(range(100))
    assert [m.value for m in messages] == values


def test_offsets_are_committed_and_fetched(broker: ServedBroker) -> None:
    """G27."""
    produce(broker, "t", [b"a", b"b"])
    reader = consumer(broker, "t", group_id="g")
    take(reader, 2)
    partition = TopicPartition("t", 0)
    reader.commit({partition: OffsetAndMetadata(1, "half", -1)})
    reader.close()

    again = consumer(broker, group_id="g")
    again.assign([partition])

    assert again.committed(partition) == 1
    assert [m.value for m in take(again, 1)] == [b"b"]
    again.close()


def test_begin_end_and_timestamp_offsets(broker: ServedBroker) -> None:
    sender = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for i in range(5):
        sender.send("t", value=b"x", timestamp_ms=5000 + 10 * i).get(WAIT_S)
    sender.close()
    partition = TopicPartition("t", 0)

    reader = consumer(broker)

    assert reader.beginning_offsets([partition]) == {partition: 0}
    assert reader.end_offsets([partition]) == {partition: 5}
    assert reader.offsets_for_times({partition: 5025})[partition].offset == 3
    reader.close()


def test_a_topic_is_created_once(broker: ServedBroker) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic("once", 3, 1)])

    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic("once", 3, 1)])

    assert "once" in admin.list_topics()
    admin.close()

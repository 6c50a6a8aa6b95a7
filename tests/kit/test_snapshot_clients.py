"""What clients see that go on after a restore, and that nothing of them gets into the restored state."""

import pytest
from confluent_kafka import KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, OutOfOrderSequenceNumberError, UnknownProducerIdError

from ottla.testing.handle import Kafka
from tests.kit.members import consumer, polled, send

IDEMPOTENT = {"enable.idempotence": True}


def values(handle: Kafka) -> list[bytes | None]:
    return [record.value for record in handle.records("orders")]


def idempotent_producer(handle: Kafka) -> KafkaProducer:
    config = handle.client_config("producer", "kafka-python")
    return KafkaProducer(**config, enable_idempotence=True, delivery_timeout_ms=3000, request_timeout_ms=2000)


def outcome(producer: KafkaProducer, value: bytes) -> type[BaseException] | None:
    try:
        producer.send("orders", value, partition=0).get(20)
    except KafkaError as error:
        return type(error)
    return None


def test_known_producer_that_wrote_since_is_out_of_order(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    old = idempotent_producer(handle)
    old.send("orders", b"seed").get(20)
    handle.snapshot("seeded")
    old.send("orders", b"later").get(20)
    handle.restore("seeded")

    assert outcome(old, b"ghost") is OutOfOrderSequenceNumberError

    assert values(handle) == [b"seed"]
    old.close(timeout=0)


def test_later_producer_is_unknown(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    handle.snapshot("seeded")
    old = idempotent_producer(handle)
    old.send("orders", b"later").get(20)
    handle.restore("seeded")

    assert outcome(old, b"ghost") is UnknownProducerIdError

    assert values(handle) == []
    old.close(timeout=0)


def test_known_producer_goes_on_from_the_snapshot(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    old = send(handle, "orders", b"seed", **IDEMPOTENT)
    handle.snapshot("seeded")
    handle.produce("orders", [b"of another"])
    handle.restore("seeded")

    old.produce("orders", b"next")

    assert old.flush(20) == 0
    assert values(handle) == [b"seed", b"next"]


def test_known_librdkafka_producer_that_wrote_since_fails(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    old = send(handle, "orders", b"seed", **IDEMPOTENT)
    handle.snapshot("seeded")
    old.produce("orders", b"later")
    assert old.flush(20) == 0
    handle.restore("seeded")

    old.produce("orders", b"ghost")
    with pytest.raises(KafkaException, match="FATAL,code=OUT_OF_ORDER_SEQUENCE_NUMBER"):
        old.flush(20)

    assert values(handle) == [b"seed"]


def test_later_librdkafka_producer_writes_nothing(handle: Kafka) -> None:
    """It goes on with the id it has, which is refused however often it tries."""
    handle.create_topic("orders", partitions=1)
    handle.snapshot("seeded")
    old = send(handle, "orders", b"later", **IDEMPOTENT)
    handle.restore("seeded")

    old.produce("orders", b"ghost")

    assert old.flush(2) == 1
    assert values(handle) == []
    old.purge()


def test_consumer_goes_back_to_where_its_history_parted(handle: Kafka) -> None:
    """KIP-320: what it had read of the other history lies behind the end of that epoch."""
    handle.produce("orders", [b"seed"], partition=0)
    handle.snapshot("seeded")
    handle.produce("orders", [b"later"] * 3, partition=0)
    made = KafkaConsumer(**handle.client_config("consumer", "kafka-python"), consumer_timeout_ms=20_000)
    made.assign([TopicPartition("orders", 0)])
    try:
        assert [next(made).value for _ in range(4)] == [b"seed", b"later", b"later", b"later"]

        handle.restore("seeded")
        handle.produce("orders", [b"new"], partition=0)

        assert next(made).value == b"new"
    finally:
        made.close()


def test_position_beyond_the_end_is_out_of_range(handle: Kafka) -> None:
    """A position that carries no epoch: `auto.offset.reset` says what is next."""
    handle.produce("orders", [b"seed"], partition=0)
    handle.snapshot("seeded")
    handle.produce("orders", [b"later"] * 3, partition=0)
    made = KafkaConsumer(**handle.client_config("consumer", "kafka-python"), consumer_timeout_ms=20_000)
    made.assign([TopicPartition("orders", 0)])
    try:
        handle.restore("seeded")
        made.seek(TopicPartition("orders", 0), 4)

        assert next(made).value == b"seed"
    finally:
        made.close()


def test_member_joins_again_and_reads_from_what_was_committed(handle: Kafka) -> None:
    handle.produce("orders", [b"a", b"b", b"c"], partition=0)
    with consumer(handle, "shop", "orders", **{"enable.auto.commit": False}) as shop:
        polled(shop, 1)
        shop.commit(asynchronous=False)
        handle.snapshot("seeded")
        generation = handle.group("shop").generation
        polled(shop, 2)
        shop.commit(asynchronous=False)

        handle.restore("seeded")

        again = polled(shop, 2)
        group = handle.group("shop").describe()
    assert again == [b"b", b"c"]
    assert group.generation > generation


def test_later_transaction_cannot_be_committed(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    till = Producer(handle.client_config("producer") | {"transactional.id": "till", "log_level": 0})
    till.init_transactions(20)
    handle.snapshot("seeded")
    till.begin_transaction()
    till.produce("orders", b"ghost")
    till.flush(20)

    handle.restore("seeded")

    with pytest.raises(KafkaException, match="INVALID_TXN_STATE"):
        till.commit_transaction(10)
    assert handle.records("orders", isolation="log") == []

"""What the integration suites of the public clients ask of a broker and nothing else here does, in our own words."""

import asyncio
import uuid

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as NamedPartition
from aiokafka.errors import InvalidSessionTimeoutError, OffsetOutOfRangeError
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka.admin import ConfigResource as NamedResource
from kafka.admin import ConfigResourceType, KafkaAdminClient

from tests.clients.test_confluent_kafka import WAIT_S, consumer, create_topic, produced, producer
from tests.served import ServedBroker


def admin(broker: ServedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def topic_config(asker: AdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return {name: entry.value for name, entry in asker.describe_configs([resource])[resource].result(WAIT_S).items()}


def code_of(error: KafkaException) -> int:
    return error.args[0].code()


def test_the_last_cleanup_policy_can_be_taken_away(broker: ServedBroker) -> None:
    """confluent-kafka: incremental alterations of two topics in one request."""
    create_topic(broker, "both")
    create_topic(broker, "none")
    changes = {"both": ("compact", AlterConfigOpType.APPEND), "none": ("delete", AlterConfigOpType.SUBTRACT)}
    asker = admin(broker)
    resources = []
    for topic, (value, how) in changes.items():
        entry = ConfigEntry("cleanup.policy", value, incremental_operation=how)
        resources.append(ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry]))
    for done in asker.incremental_alter_configs(resources).values():
        done.result(WAIT_S)

    assert topic_config(asker, "both")["cleanup.policy"] == "delete,compact"
    assert topic_config(asker, "none")["cleanup.policy"] == ""


def test_a_topic_that_is_only_validated_is_not_created(broker: ServedBroker) -> None:
    asker = admin(broker)

    asker.create_topics([NewTopic("t", 2, 1)], validate_only=True)["t"].result(WAIT_S)

    assert "t" not in asker.list_topics(timeout=WAIT_S).topics


def test_records_are_deleted_to_an_offset_and_high_watermark(broker: ServedBroker) -> None:
    create_topic(broker, "t")
    produced(broker, "t", ["a", "b", "c"])
    asker = admin(broker)
    beyond, second, everything = (TopicPartition("t", 0, offset) for offset in (99, 2, -1))

    with pytest.raises(KafkaException) as refused:
        asker.delete_records([beyond])[beyond].result(WAIT_S)
    assert code_of(refused.value) == KafkaError.OFFSET_OUT_OF_RANGE
    assert asker.delete_records([second])[second].result(WAIT_S).low_watermark == 2
    assert asker.delete_records([everything])[everything].result(WAIT_S).low_watermark == 3


def test_offsets_are_listed_by_every_specification(broker: ServedBroker) -> None:
    create_topic(broker, "t")
    sender = producer(broker)
    for timestamp in (1100, 1400, 1250):
        sender.produce("t", b"x", timestamp=timestamp)
        sender.flush(WAIT_S)
    asker, place = admin(broker), TopicPartition("t", 0)

    def listed(specification: OffsetSpec) -> int:
        return asker.list_offsets({place: specification})[place].result(WAIT_S).offset

    assert [listed(OffsetSpec.earliest()), listed(OffsetSpec.latest()), listed(OffsetSpec.max_timestamp())] == [0, 3, 1]
    by_time = {1050: 0, 1150: 1, 1350: 1, 1450: -1}
    assert {time: listed(OffsetSpec.for_timestamp(time)) for time in by_time} == by_time


def test_record_without_a_key_is_refused_on_an_open_connection(broker: ServedBroker) -> None:
    create_topic(broker, "t", cleanup_policy="compact")
    sender, outcomes = producer(broker), []

    sender.produce("t", b"no key", on_delivery=lambda error, _: outcomes.append(error and error.code()))
    sender.flush(WAIT_S)
    sender.produce("t", b"a key", key="k", on_delivery=lambda error, _: outcomes.append(error and error.code()))
    sender.flush(WAIT_S)

    assert outcomes == [KafkaError.INVALID_RECORD, None]
    assert "failed unexpectedly" not in broker.stderr


def test_consumer_without_a_reset_policy_gets_an_offset_error(broker: ServedBroker) -> None:
    create_topic(broker, "t")
    reader = consumer(broker, "g", auto_offset_reset="error")
    reader.assign([TopicPartition("t", 0, 77)])

    message = reader.poll(WAIT_S)

    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
    reader.close()


def test_described_broker_shows_its_advertised_address(broker: ServedBroker) -> None:
    """kafka-python looks among the broker's configs for it."""
    asker = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    described = asker.describe_configs([NamedResource(ConfigResourceType.BROKER, "0")], config_filter="all")
    asker.close()

    config = described["broker"]["0"]["advertised.listeners"]
    assert (config["value"], config["config_source"]) == (f"PLAINTEXT://{broker.bootstrap}", "STATIC_BROKER_CONFIG")
    assert (config["read_only"], config["is_sensitive"], config["synonyms"]) == (True, False, [])


async def test_a_session_timeout_out_of_bounds_is_an_error_of_its_own(broker: ServedBroker) -> None:
    """aiokafka raises it from `start`."""
    create_topic(broker, "t")
    reader = AIOKafkaConsumer(
        "t", group_id="g", bootstrap_servers=broker.bootstrap, session_timeout_ms=200, heartbeat_interval_ms=100
    )
    with pytest.raises(InvalidSessionTimeoutError):
        await reader.start()
    await reader.stop()


async def test_a_position_beyond_the_end_is_out_of_range(broker: ServedBroker) -> None:
    create_topic(broker, "t")
    settings = {"bootstrap_servers": broker.bootstrap, "group_id": "g", "auto_offset_reset": "none"}
    async with AIOKafkaConsumer("t", **settings) as reader:
        place = NamedPartition("t", 0)
        reader.seek(place, 19999)

        async def read_on() -> None:
            # The fetch that was under way when the position changed may still end without records.
            while True:
                await reader.getmany(place, timeout_ms=500)

        with pytest.raises(OffsetOutOfRangeError):
            await asyncio.wait_for(read_on(), WAIT_S)


async def test_a_pattern_finds_the_topic_that_is_created_later(broker: ServedBroker) -> None:
    """And subscribing by a pattern creates none."""
    prefix = uuid.uuid4().hex
    settings = {"bootstrap_servers": broker.bootstrap, "metadata_max_age_ms": 100, "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer(group_id="g", **settings) as reader:
        reader.subscribe(pattern=f"^{prefix}-.*")
        first = asyncio.ensure_future(reader.getone())
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as sender:
            await sender.send_and_wait(f"{prefix}-1", b"found")

        assert (await asyncio.wait_for(first, WAIT_S)).value == b"found"

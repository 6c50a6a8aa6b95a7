"""aiokafka: produce, consume, groups."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.served import ServedBroker

WAIT_S = 20


async def produce(broker: ServedBroker, topic: str, values: list[bytes], **settings: object) -> list:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **settings) as sender:
        return [await sender.send_and_wait(topic, value, key=value) for value in values]


def consumer(broker: ServedBroker, *topics: str, **settings: object) -> AIOKafkaConsumer:
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    return AIOKafkaConsumer(*topics, bootstrap_servers=broker.bootstrap, **{**defaults, **settings})


async def take(reader: AIOKafkaConsumer, count: int) -> list:
    return [await asyncio.wait_for(reader.getone(), WAIT_S) for _ in range(count)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_a_round_trip(broker: ServedBroker, codec: str | None) -> None:
    values = [f"value {i} ".encode() * 10 for i in range(20)]

    placed = await produce(broker, "t", values, compression_type=codec)
    async with consumer(broker, "t") as reader:
        messages = await take(reader, 20)

    assert [p.offset for p in placed] == list(range(20))
    assert [m.value for m in messages] == values


async def test_an_idempotent_producer(broker: ServedBroker) -> None:
    placed = await produce(broker, "t", [b"a", b"b", b"c"], enable_idempotence=True)

    assert [p.offset for p in placed] == [0, 1, 2]


async def test_a_consumer_waits_for_what_comes_later(broker: ServedBroker) -> None:
    """A fetch is parked and woken by the append, not by its timeout."""
    await produce(broker, "t", [b"first"])
    async with consumer(broker, "t", fetch_max_wait_ms=10_000) as reader:
        assert [m.value for m in await take(reader, 1)] == [b"first"]
        waiting = asyncio.create_task(reader.getone())

        await produce(broker, "t", [b"later"])

        assert (await asyncio.wait_for(waiting, 5)).value == b"later"


class Shares:
    """Says when every partition is owned and no member owns all."""

    def __init__(self, everything: set[TopicPartition]) -> None:
        self.fair = asyncio.Event()
        self._everything = everything
        self._owned: dict[AIOKafkaConsumer, set[TopicPartition]] = {}

    def of(self, reader: AIOKafkaConsumer) -> ConsumerRebalanceListener:
        shares = self

        class Share(ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
                shares._owned[reader] = set()

            def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
                shares._owned[reader] = set(assigned)
                sizes = [len(owned) for owned in shares._owned.values()]
                if set().union(*shares._owned.values()) == shares._everything and sizes == [2, 2]:
                    shares.fair.set()

        return Share()


async def test_two_consumers_share_the_partitions_of_a_group(broker: ServedBroker) -> None:
    """G09: the second to come gets its share by a rebalance of both."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic("t", 4, 1)])
    await admin.close()
    settings = {"group_id": "g", "heartbeat_interval_ms": 200}
    shares = Shares({TopicPartition("t", p) for p in range(4)})

    async with consumer(broker, **settings) as one, consumer(broker, **settings) as two:
        for reader in (one, two):
            reader.subscribe(["t"], listener=shares.of(reader))

        await asyncio.wait_for(shares.fair.wait(), WAIT_S)

        assert one.assignment() | two.assignment() == {TopicPartition("t", p) for p in range(4)}

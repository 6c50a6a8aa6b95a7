"""Transactions as clients see them: what is committed is read, what is aborted is not (I-21, I-22, I-23)."""

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from kafka import KafkaProducer

from tests.clients.test_aiokafka import consumer as aio_consumer
from tests.clients.test_aiokafka import take
from tests.clients.test_confluent_kafka import WAIT_S, consumed, consumer, create_topic, produced
from tests.served import ServedBroker

PARTITIONS = 3


def transactional(broker: ServedBroker, transactional_id: str = "tx", **settings: object) -> Producer:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    sender = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, **named})
    sender.init_transactions(WAIT_S)
    return sender


def write(sender: Producer, values: list[str]) -> None:
    """All of them are in the log when it returns: a transaction that is aborted has records as well."""
    for number, value in enumerate(values):
        sender.produce("t", value=value, partition=number % PARTITIONS)
    assert sender.flush(WAIT_S) == 0


def read(broker: ServedBroker, count: int, level: str = "read_committed") -> list[str]:
    """Values up to this count, and none beyond it."""
    reader: Consumer = consumer(broker, f"readers of {level}", isolation_level=level)
    reader.subscribe(["t"])
    messages = consumed(reader, count)
    assert reader.poll(0.5) is None
    reader.close()
    return sorted(str(message.value(), "utf-8") for message in messages)


def test_committed_transactions_are_read_and_aborted_are_not(broker: ServedBroker) -> None:
    create_topic(broker, "t", PARTITIONS)
    sender = transactional(broker)
    committed: list[str] = []
    for number in range(10):
        values = [f"{number}-{part}" for part in range(PARTITIONS)]
        sender.begin_transaction()
        write(sender, values)
        if number % 3:
            sender.abort_transaction(WAIT_S)
        else:
            sender.commit_transaction(WAIT_S)
            committed += values

    assert read(broker, len(committed)) == sorted(committed)
    assert len(read(broker, 10 * PARTITIONS, "read_uncommitted")) == 10 * PARTITIONS


def test_a_newer_producer_fences_the_older_one(broker: ServedBroker) -> None:
    create_topic(broker, "t", PARTITIONS)
    old = transactional(broker)
    old.begin_transaction()
    write(old, ["fenced"])

    new = transactional(broker)
    with pytest.raises(KafkaException) as refused:
        old.commit_transaction(WAIT_S)
    new.begin_transaction()
    write(new, ["new"])
    new.commit_transaction(WAIT_S)

    error: KafkaError = refused.value.args[0]
    assert (error.code(), error.fatal()) == (KafkaError._FENCED, True)
    assert read(broker, 1) == ["new"]


@pytest.mark.parametrize("ends", ["restart", "kill"])
def test_a_transaction_survives_a_restart_of_the_broker(broker: ServedBroker, ends: str) -> None:
    create_topic(broker, "t", PARTITIONS)
    sender = transactional(broker)
    sender.begin_transaction()
    write(sender, ["before", "of", "it"])

    broker.listen = broker.bootstrap
    if ends == "kill":
        broker.kill()
        broker.start()
    else:
        broker.restart()
    write(sender, ["after"])
    sender.commit_transaction(WAIT_S)

    assert read(broker, 4) == ["after", "before", "it", "of"]


def test_a_producer_that_dies_is_aborted_by_the_broker(broker: ServedBroker) -> None:
    broker.settings["transaction.abort.timed.out.transaction.cleanup.interval.ms"] = "100"
    broker.restart()
    create_topic(broker, "t", PARTITIONS)
    sender = transactional(broker, transaction_timeout_ms=1000, message_timeout_ms=1000)
    sender.begin_transaction()
    write(sender, ["of the dead"])

    produced(broker, "t", ["plain"])

    assert read(broker, 1) == ["plain"]


def test_transactions_of_kafka_python(broker: ServedBroker) -> None:
    create_topic(broker, "t")
    sender = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="tx")
    sender.init_transactions()
    for value in (b"a", b"b", b"c"):
        sender.begin_transaction()
        sender.send("t", value).get(WAIT_S)
        if value == b"b":
            sender.abort_transaction()
        else:
            sender.commit_transaction()
    sender.close()

    assert read(broker, 2) == ["a", "c"]


async def test_transactions_of_aiokafka(broker: ServedBroker) -> None:
    sender = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="tx")
    await sender.start()
    for value in (b"a", b"b", b"c"):
        await sender.begin_transaction()
        await sender.send_and_wait("t", value)
        await (sender.abort_transaction() if value == b"b" else sender.commit_transaction())

    async with aio_consumer(broker, "t", isolation_level="read_committed") as reader:
        assert [message.value for message in await take(reader, 2)] == [b"a", b"c"]

    newer: Any = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="tx")
    await newer.start()
    with pytest.raises(ProducerFenced):
        async with asyncio.timeout(WAIT_S), sender.transaction():
            await sender.send_and_wait("t", b"fenced")
    await newer.stop()
    await sender.stop()

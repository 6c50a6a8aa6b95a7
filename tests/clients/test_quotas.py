"""Quotas by Kafka's own `kafka-configs`, and producers and consumers of three clients that are held to them (SEC21)."""

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import admin as confluent

from ottla import BrokerThread
from tests.cli.embedded import json_of, output_of
from tests.java_tools import run_tool
from tests.served import ServedBroker

WAIT_S = 20
CONFIGS = "kafka.admin.ConfigCommand"
# A window of two seconds: what may come at once is soon used up.
SETTINGS = {"quota.window.num": "2", "group.initial.rebalance.delay.ms": "0"}
LIMIT = 100_000
RECORD = bytes(5_000)
COUNT = 100


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(settings=SETTINGS) as broker:
        admin = confluent.AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([confluent.NewTopic("t", 1, 1)])["t"].result(WAIT_S)
        yield broker


def limit(broker: BrokerThread, key: str, value: int = LIMIT) -> None:
    output_of(broker, "quotas", "alter", "client-id=bound", "--add-config", f"{key}={value}")


def assert_kept(began_s: float) -> None:
    """So many bytes take so long, but for the burst that a window allows."""
    took_s = time.monotonic() - began_s
    at_least_s = COUNT * len(RECORD) / LIMIT - 2.2
    assert at_least_s * 0.95 <= took_s <= at_least_s * 2 + 4


@pytest.mark.java
@pytest.mark.timeout(300)
def test_kafka_configs_sets_describes_and_removes_quotas(broker: ServedBroker | BrokerThread) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    alice = ("--entity-type", "users", "--entity-name", "alice")
    anybody = ("--entity-type", "clients", "--entity-default")
    run_tool(CONFIGS, *at, "--alter", "--add-config", "producer_byte_rate=1024,request_percentage=200", *alice)
    run_tool(CONFIGS, *at, "--alter", "--add-config", "consumer_byte_rate=2048", *alice, *anybody)
    run_tool(
        CONFIGS, *at, "--alter", "--add-config", "connection_creation_rate=100", "--entity-type", "ips",
        "--entity-name", "10.0.0.7",
    )  # fmt: skip
    described = run_tool(CONFIGS, *at, "--describe", *alice)
    of_pair = run_tool(CONFIGS, *at, "--describe", *alice, *anybody)
    of_ips = run_tool(CONFIGS, *at, "--describe", "--entity-type", "ips")
    ours = json_of(broker, "quotas", "describe")
    run_tool(CONFIGS, *at, "--alter", "--delete-config", "producer_byte_rate,request_percentage", *alice)
    refused = run_tool(CONFIGS, *at, "--alter", "--add-config", "producer_byte_rate=0", *alice, check=False)

    assert "Quota configs for user-principal 'alice' are" in described
    assert "producer_byte_rate=1024.0" in described
    assert "request_percentage=200.0" in described
    assert "consumer_byte_rate=2048.0" in of_pair
    assert "Quota configs for ip '10.0.0.7' are connection_creation_rate=100.0" in of_ips
    assert ours == [
        {"entity": {"ip": "10.0.0.7"}, "quotas": {"connection_creation_rate": 100}},
        {"entity": {"user": "alice"}, "quotas": {"producer_byte_rate": 1024, "request_percentage": 200}},
        {"entity": {"user": "alice", "client-id": None}, "quotas": {"consumer_byte_rate": 2048}},
    ]
    assert json_of(broker, "quotas", "describe", "user=alice") == ours[2:]
    assert "Completed" not in refused


@pytest.mark.java
@pytest.mark.timeout(300)
def test_a_broker_on_disk_has_its_quotas_after_a_restart(tmp_path: Any) -> None:
    with ServedBroker(tmp_path / "data", SETTINGS) as served:
        alice = ("--entity-type", "users", "--entity-name", "alice")
        run_tool(
            CONFIGS, "--bootstrap-server", served.bootstrap, "--alter", "--add-config", "producer_byte_rate=7", *alice
        )
        served.kill()
        served.start()
        assert json_of(served, "quotas", "describe") == [
            {"entity": {"user": "alice"}, "quotas": {"producer_byte_rate": 7}}
        ]


def test_librdkafka_sees_throttles_and_keeps_a_producers_quota(broker: BrokerThread) -> None:
    limit(broker, "producer_byte_rate")
    seen: list[float] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "bound",
            "linger.ms": 5,
            "batch.size": 20_000,
            "throttle_cb": lambda event: seen.append(event.throttle_time),
        }
    )
    began_s = time.monotonic()
    for _ in range(COUNT):
        producer.produce("t", RECORD)
    assert producer.flush(60) == 0
    assert_kept(began_s)
    assert max(seen) > 0


def test_librdkafka_reads_all_within_a_consumers_quota(broker: BrokerThread) -> None:
    """SEC23: no record is lost or comes twice."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "batch.num.messages": 1}
    )
    for number in range(COUNT):
        producer.produce("t", b"%05d" % number + RECORD[5:])
    producer.flush(WAIT_S)
    limit(broker, "consumer_byte_rate")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "client.id": "bound", "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    began_s = time.monotonic()
    read: list[int] = []
    while len(read) < COUNT:
        assert time.monotonic() - began_s < 60
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None
            read.append(int((message.value() or b"")[:5]))
    assert_kept(began_s)
    consumer.close()
    assert read == list(range(COUNT))


async def test_aiokafka_produces_and_consumes_within_its_quotas(broker: BrokerThread) -> None:
    await asyncio.to_thread(limit, broker, "producer_byte_rate")
    await asyncio.to_thread(limit, broker, "consumer_byte_rate")
    began_s = time.monotonic()
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap, client_id="bound", max_batch_size=20_000
    ) as producer:
        await asyncio.gather(*[await producer.send("t", RECORD) for _ in range(COUNT)])
    assert_kept(began_s)
    began_s = time.monotonic()
    async with AIOKafkaConsumer(
        "t", bootstrap_servers=broker.bootstrap, client_id="bound", auto_offset_reset="earliest",
        max_partition_fetch_bytes=20_000,
    ) as consumer:  # fmt: skip
        async with asyncio.timeout(60):
            for offset in range(COUNT):
                assert (await consumer.getone()).offset == offset
    assert_kept(began_s)


def test_kafka_python_produces_within_its_quota(broker: BrokerThread) -> None:
    limit(broker, "producer_byte_rate")
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="bound", batch_size=20_000)
    began_s = time.monotonic()
    sent = [producer.send("t", RECORD) for _ in range(COUNT)]
    assert [each.get(60).offset for each in sent] == list(range(COUNT))
    assert_kept(began_s)
    producer.close()


@pytest.mark.java
@pytest.mark.timeout(300)
def test_java_produces_within_its_quota_and_shows_its_rests(broker: BrokerThread) -> None:
    """SEC21: its metric has what each answer has said."""
    limit(broker, "producer_byte_rate")
    began_s = time.monotonic()
    printed = run_tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", "t", "--num-records", str(COUNT),
        "--record-size", str(len(RECORD)), "--throughput", "-1", "--print-metrics", "--producer-props",
        f"bootstrap.servers={broker.bootstrap}", "client.id=bound", "batch.size=20000",
    )  # fmt: skip

    assert time.monotonic() - began_s >= COUNT * len(RECORD) / LIMIT - 2.2
    assert f"{COUNT} records sent" in printed
    (longest,) = re.findall(r"produce-throttle-time-max\S*\s*:\s*([0-9.]+)", printed)
    assert float(longest) > 100


def test_another_client_is_not_held_back(broker: BrokerThread) -> None:
    limit(broker, "producer_byte_rate", 1_000)
    bound = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "client.id": "bound"})
    for _ in range(10):
        bound.produce("t", RECORD)
    bound.flush(1)
    free = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "client.id": "free"})
    began_s = time.monotonic()
    for _ in range(COUNT):
        free.produce("t", RECORD)
    assert free.flush(WAIT_S) == 0
    assert time.monotonic() - began_s < 3
    bound.purge()
    bound.flush(1)

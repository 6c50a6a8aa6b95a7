"""SEC09: brokers log in to each other by SCRAM from the first start on, and one with another password does not join."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.broker.config.server import ServerConfig
from ottla.broker.local_cluster import LocalCluster
from ottla.broker.logging import LazyLog
from ottla.broker.server import listeners as listeners_module
from ottla.security.client import LoginCredentials, Secret
from tests.broker.clusters import QUICK_SESSIONS, WAIT_S, state_of, until
from tests.broker.replicas import replica
from tests.cli.runner import run

PASSWORD, WRONG = "between brokers", "another one"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SETTINGS = QUICK_SESSIONS | {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f'{MODULE} username="broker" password="{PASSWORD}";',
    "replica.lag.time.max.ms": "500",
}


@asynccontextmanager
async def cluster_from_nothing(data_dir: Path, written: io.StringIO) -> AsyncIterator[LocalCluster]:
    """With a topic whose leader is broker 0, and whose replicas are all. `written` gets the log."""
    made = run("users", "create", "broker", "--data-dir", str(data_dir), stdin=PASSWORD)
    assert made.exit_code == 0, made.output
    log = LazyLog("json", "info", written)
    cluster = LocalCluster(ServerConfig(SETTINGS), data_dir=data_dir, brokers=3, port=0, log=log)
    await cluster.start()
    try:
        await asyncio.to_thread(create_topic, of_librdkafka(cluster))
        yield cluster
    finally:
        await cluster.stop()


def of_librdkafka(cluster: LocalCluster) -> dict[str, object]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "broker",
        "sasl.password": PASSWORD,
    }


def create_topic(client: dict[str, object]) -> None:
    wanted = NewTopic("t", 1, replica_assignment=[[0, 1, 2]])
    admin = AdminClient(client)
    admin.create_topics([wanted])["t"].result(WAIT_S)


def produce(client: dict[str, object]) -> list[object]:
    """With acks=all; the errors."""
    found: list[object] = []
    producer = Producer(client)
    producer.produce("t", b"x", on_delivery=lambda error, _: found.append(error))
    producer.flush(WAIT_S)
    return found


async def test_brokers_join_an_empty_cluster_by_scram(tmp_path: Path) -> None:
    written = io.StringIO()
    async with cluster_from_nothing(tmp_path / "data", written) as cluster:
        assert await asyncio.to_thread(produce, of_librdkafka(cluster)) == [None]
        await until(lambda: all(replica(each).log.log_end_offset == 1 for each in cluster.brokers.values()))
        assert set(state_of(cluster.brokers[0]).isr) == {0, 1, 2}
    assert "no login" not in written.getvalue()
    assert PASSWORD not in written.getvalue()


async def test_broker_with_another_password_copies_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says why."""
    right = LoginCredentials("SCRAM-SHA-512", "broker", Secret(PASSWORD))
    logins = [right, right, right._replace(password=Secret(WRONG))]
    monkeypatch.setattr(listeners_module, "inter_broker_login", lambda *_: logins.pop(0))
    written = io.StringIO()
    async with cluster_from_nothing(tmp_path / "data", written) as cluster:
        await until(lambda: set(state_of(cluster.brokers[0]).isr) == {0, 1})
        assert await asyncio.to_thread(produce, of_librdkafka(cluster)) == [None]
        assert replica(cluster.brokers[2]).log.log_end_offset == 0
    said = [json.loads(line) for line in written.getvalue().splitlines()]
    reasons = {each.get("why", "") for each in said if each["broker"] == 2}
    assert [why for why in reasons if why.startswith("no login as broker: Authentication failed")]
    assert WRONG not in written.getvalue()

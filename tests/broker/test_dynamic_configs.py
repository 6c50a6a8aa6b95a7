"""Every property that can be altered while the broker runs is obeyed by the running broker, at once.

One proof per property; `test_every_dynamic_property_has_a_proof` fails for one without. A topic config is altered for
the topic and by way of the server property behind it, for all brokers and for one.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.config.alter import Alteration, Operation
from ottla.broker.config.definitions import SERVER_OPTIONS, SYNONYMS, TOPIC_OPTIONS
from ottla.broker.config.options import Update
from ottla.broker.config.server import ServerConfig
from ottla.broker.config.topic import log_config
from ottla.broker.metadata import dynamic_configs
from ottla.broker.replicas.transaction_verification import TransactionalBatch, TransactionOperation
from ottla.broker.server.connection_interfaces import HELD_BY_THROTTLE
from ottla.protocol.errors import InvalidConfig, InvalidRequest
from ottla.replication.replication_quota import ReplicationQuota
from ottla.storage.log_config import LogConfig
from tests.broker.dynamic_configs import (
    CHECK_MS,
    COMPACTED,
    HOUR_MS,
    Proof,
    Scope,
    Stage,
)
from tests.broker.topic_config_proofs import TOPIC_PROOFS
from tests.broker.virtual_cluster import Cluster
from tests.broker.wire import client_of, create_topic, running_broker


async def producer_id_expiration_ms(stage: Stage) -> None:
    await stage.start()
    await stage.append("x", producer_id=7, producer_epoch=0, base_sequence=0)
    await stage.sleep(2 * CHECK_MS)
    assert set(stage.log.producers.states) == {7}
    await stage.alter(1)
    await stage.sleep(2 * CHECK_MS)
    assert set(stage.log.producers.states) == set()


async def log_cleaner_backoff_ms(stage: Stage) -> None:
    await stage.start(**COMPACTED, min_cleanable_dirty_ratio="0")
    await stage.alter(HOUR_MS)
    await stage.sleep(2 * CHECK_MS)
    await stage.append_segments(4)
    await stage.sleep(HOUR_MS // 2)
    assert stage.record_count() == 4
    await stage.alter(CHECK_MS)
    await stage.sleep(3 * CHECK_MS)
    assert stage.record_count() < 4


async def connections(stage: Stage) -> int:
    """How many are open after one more has been tried."""
    host = stage.node.host
    transport = await stage.cluster.network.connect(asyncio.Protocol, host, 9092)
    await stage.sleep(CHECK_MS)
    assert transport is not None
    return len(stage.node.broker.server.connections)


async def max_connections(stage: Stage) -> None:
    await stage.start()
    assert await connections(stage) == 1
    await stage.alter(1)
    assert await connections(stage) == 1
    await stage.alter(2)
    assert await connections(stage) == 2


async def max_connections_per_ip_overrides(stage: Stage) -> None:
    await stage.start()
    assert await connections(stage) == 1
    await stage.alter("client:1")
    assert await connections(stage) == 1
    await stage.alter("client:2")
    assert await connections(stage) == 2


async def max_connection_creation_rate(stage: Stage) -> None:
    """A rate that was raised is not paid for with what the old one owed."""
    await stage.start()
    await stage.alter(1)
    for _ in range(12):
        await connections(stage)
    assert newest_is_throttled(stage)
    await stage.alter(1000)
    await connections(stage)
    assert not newest_is_throttled(stage)


async def max_unauthenticated_connections(stage: Stage) -> None:
    """Each connection that comes is counted against what holds then: tests/broker/test_pending_logins.py."""
    await stage.start()
    logins = stage.node.broker.server.logins
    await stage.alter(3)
    assert logins.most == 3
    await stage.alter(5)
    assert logins.most == 5


async def request_log_slow_ms(stage: Stage) -> None:
    await stage.start()
    times = stage.node.broker.server.times
    await stage.alter(0)
    assert not times.is_slow(HOUR_MS * 1_000_000)
    await stage.alter(20)
    assert times.is_slow(20_000_000)


async def log_level_revert_ms(stage: Stage) -> None:
    await stage.start()
    await stage.alter(HOUR_MS)
    loggers = stage.node.broker.parts.loggers
    at_start = loggers.levels()
    await stage.alter(2 * CHECK_MS)
    loggers.alter([Alteration("ottla", Operation.SET, "ERROR")], validate_only=False)
    assert loggers.levels() != at_start
    await stage.sleep(3 * CHECK_MS)
    assert loggers.levels() == at_start


async def leader_throttled_rate(stage: Stage) -> None:
    await is_exceeded_at_the_old_rate_alone(stage, lambda node: node.broker.replicas.throttles.leader)


async def follower_throttled_rate(stage: Stage) -> None:
    await is_exceeded_at_the_old_rate_alone(stage, lambda node: node.broker.replicas.throttles.follower)


async def is_exceeded_at_the_old_rate_alone(stage: Stage, quota_of: Callable[[Any], ReplicationQuota]) -> None:
    await stage.start()
    await stage.alter(1000)
    quota, now_ms = quota_of(stage.node), stage.node.broker.runtime.clock.now_ms()
    quota.record(100_000, now_ms)
    assert quota.is_exceeded(now_ms)
    await stage.alter(200_000)
    assert not quota.is_exceeded(now_ms)


async def verification_enable(stage: Stage) -> None:
    await stage.start()

    def needs_no_question() -> bool:
        first = TransactionalBatch("t", 0, producer_id=7, producer_epoch=0, sequence=0)
        verification = stage.node.broker.parts.transaction_verification
        pending = verification.begin("tx", [first], TransactionOperation.VERIFY)
        return pending.known is not None and not pending.known.errors

    assert not needs_no_question()
    await stage.alter("false")
    assert needs_no_question()


def newest_is_throttled(stage: Stage) -> bool:
    newest = list(stage.node.broker.server.connections)[-1]
    return bool(newest.holds & HELD_BY_THROTTLE)


SERVER_PROOFS: dict[str, Proof] = {
    "follower.replication.throttled.rate": follower_throttled_rate,
    "leader.replication.throttled.rate": leader_throttled_rate,
    "log.cleaner.backoff.ms": log_cleaner_backoff_ms,
    "max.connections": max_connections,
    "max.connections.per.ip": max_connections,
    "max.connections.per.ip.overrides": max_connections_per_ip_overrides,
    "max.connection.creation.rate": max_connection_creation_rate,
    "ottla.log.level.revert.ms": log_level_revert_ms,
    "ottla.max.unauthenticated.connections": max_unauthenticated_connections,
    "ottla.request.log.slow.ms": request_log_slow_ms,
    "producer.id.expiration.ms": producer_id_expiration_ms,
    "transaction.partition.verification.enable": verification_enable,
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.loop.close()


def test_every_dynamic_property_has_a_proof() -> None:
    behind_topics = {SYNONYMS[name][0].server_name for name in TOPIC_PROOFS}
    dynamic = {name for name, option in SERVER_OPTIONS.items() if option.update is not Update.READ_ONLY}

    assert set(TOPIC_PROOFS) == set(TOPIC_OPTIONS)
    assert behind_topics | set(SERVER_PROOFS) == dynamic


@pytest.mark.parametrize("name", sorted(TOPIC_PROOFS))
@pytest.mark.parametrize("scope", Scope)
def test_running_broker_obeys_a_change_of_a_topic_config(cluster: Cluster, name: str, scope: Scope) -> None:
    server = SERVER_OPTIONS[SYNONYMS[name][0].server_name]
    if scope is Scope.ONE_BROKER and server.update is Update.ONLY_CLUSTER_WIDE:
        pytest.skip("it is refused for one broker")
    cluster.run(TOPIC_PROOFS[name](Stage(cluster, name, scope)))


@pytest.mark.parametrize("name", sorted(SERVER_PROOFS))
@pytest.mark.parametrize("scope", [Scope.ALL_BROKERS, Scope.ONE_BROKER])
def test_running_broker_obeys_a_change_of_a_property(cluster: Cluster, name: str, scope: Scope) -> None:
    cluster.run(SERVER_PROOFS[name](Stage(cluster, name, scope)))


def test_min_insync_replicas_of_one_broker_is_refused(cluster: Cluster) -> None:
    """As in Kafka with eligible leader replicas: leaders and the controller have to agree."""

    async def story() -> None:
        (node,) = await cluster.started(1)
        with pytest.raises(InvalidConfig, match="only for all"):
            await node.broker.config_admin.alter_broker(lambda: {"min.insync.replicas": "1"}, of_all_brokers=False)
        # What is malformed comes first, as in Kafka.
        with pytest.raises(InvalidRequest, match="at least 1"):
            await node.broker.config_admin.alter_broker(lambda: {"min.insync.replicas": "0"}, of_all_brokers=False)

    cluster.run(story())


async def test_topics_without_configs_of_their_own_share_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of a default, and at the start: for each of thousands it would be one long step of the loop."""
    made: list[Mapping[str, str]] = []

    def counted(configs: Mapping[str, str], config: ServerConfig) -> LogConfig:
        made.append(configs)
        return log_config(configs, config)

    monkeypatch.setattr(dynamic_configs, "log_config", counted)
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        for name in ("a", "b", "c"):
            await create_topic(client, name)
        await create_topic(client, "own", retention_ms=5)
        made.clear()
        await broker.config_admin.alter_broker(lambda: {"log.retention.ms": "1234"}, of_all_brokers=True)

        assert made == [{}, {"retention.ms": "5"}]
        assert {broker.replicas.partition(name, 0).log.config.retention_ms for name in "abc"} == {1234}
        assert broker.replicas.partition("own", 0).log.config.retention_ms == 5

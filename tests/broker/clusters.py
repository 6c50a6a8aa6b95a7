"""Several brokers on the test's loop, and what is asked of them and known by them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.broker.local_cluster import LocalCluster
from ottla.broker.logging import LazyLog
from ottla.cluster.image import PartitionInfo
from ottla.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from tests.broker.wire import client_of

WAIT_S = 20
LOOK_EVERY_S = 0.005
# A killed broker is soon given up, and leaders stay where a test has put them.
QUICK_SESSIONS = {
    "internal.segment.bytes.min": "1",
    "broker.session.timeout.ms": "500",
    "broker.heartbeat.interval.ms": "100",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
}


@asynccontextmanager
async def running_cluster(data_dir: Path, brokers: int = 2, **settings: object) -> AsyncIterator[LocalCluster]:
    """Settings are Kafka's names with underscores for dots."""
    static = QUICK_SESSIONS | {name.replace("_", "."): str(value) for name, value in settings.items()}
    cluster = LocalCluster(ServerConfig(static), data_dir=data_dir, brokers=brokers, port=0, log=LazyLog(level="error"))
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


async def ask(broker: Broker, request: Any, version: int | None = None) -> Any:
    """The broker's answer, in the highest version if no other is said."""
    cls = type(request)
    response = getattr(import_module(cls.__module__), cls.__name__.replace("Request", "Response"))
    async with client_of(broker) as client:
        return await client.call(request, response, cls.VERSIONS[1] if version is None else version)


async def create_topic(broker: Broker, name: str, *replicas: Sequence[int]) -> None:
    """With these replicas for each partition, the first to lead."""
    assignments = [CreatableReplicaAssignment(partition_index=i, broker_ids=list(r)) for i, r in enumerate(replicas)]
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
    response = await ask(broker, CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    assert response.topics[0].error_code == 0, response.topics[0].error_message


def state_of(broker: Broker, name: str = "t", index: int = 0) -> PartitionInfo:
    """As this broker knows it."""
    state = broker.image.partition(name, index)
    assert state is not None, f"broker {broker.node_id} does not know {name}-{index}"
    return state


async def until(condition: Callable[[], bool]) -> None:
    """Until what the brokers do by themselves has made it true."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - no broker notifies a test.
            await asyncio.sleep(LOOK_EVERY_S)

"""Rules of several brokers: those of clients leave replication alone, and brokers that start again have them."""

import asyncio
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import ProduceResponse
from ottla.testing.embedded import EmbeddedCluster
from ottla.testing.faults.actions import Error
from tests.broker.clusters import create_topic
from tests.broker.wire import Client
from tests.faults.worlds import PRODUCE_VERSION, produce

SETTINGS = {"broker.session.timeout.ms": 2000, "replica.lag.time.max.ms": 2000}
NODES = (0, 1, 2)


def core(cluster: EmbeddedCluster) -> Any:
    found = cluster._core
    assert found is not None
    return found


async def replicated(cluster: EmbeddedCluster, code: ErrorCode = ErrorCode.NONE) -> None:
    """A record of acks=all to the leader of t-0 is answered so."""
    client = await Client.connect(core(cluster).brokers[cluster.leader_of("t", 0)])
    async with asyncio.timeout(10):
        response = await client.call(produce(b"a"), ProduceResponse, PRODUCE_VERSION)
    client.close()
    assert response.responses[0].partition_responses[0].error_code == int(code)


async def test_rule_about_fetch_does_not_stop_replication() -> None:
    async with EmbeddedCluster(3, settings=SETTINGS) as cluster:
        await create_topic(core(cluster).brokers[0], "t", NODES)
        fault = cluster.faults.fault(api="Fetch", do=Error("NOT_LEADER_OR_FOLLOWER"), times="unlimited")

        for _ in range(5):
            await replicated(cluster)

        assert fault.hits == 0
        assert fault.near_misses["peer"] > 0


async def test_rule_about_followers_holds_up_the_acknowledgement() -> None:
    async with EmbeddedCluster(3, settings=SETTINGS) as cluster:
        await create_topic(core(cluster).brokers[0], "t", NODES)
        await replicated(cluster)
        fault = cluster.faults.fault(api="Fetch", peer="broker", topic="t", do=Error("UNKNOWN_SERVER_ERROR"), times=4)

        await replicated(cluster)

        assert fault.hits > 0


async def test_rule_of_a_node_stays_when_that_broker_starts_again() -> None:
    async with EmbeddedCluster(3, settings=SETTINGS) as cluster:
        await create_topic(core(cluster).brokers[0], "t", NODES)
        leader = cluster.leader_of("t", 0)
        assert leader is not None
        other = next(node for node in NODES if node != leader)
        fault = cluster.faults.fault(api="Produce", node=leader, do=Error("MESSAGE_TOO_LARGE"), times="unlimited")
        elsewhere = cluster.faults.fault(api="Produce", node=other, do=Error("INVALID_RECORD"))
        await replicated(cluster, ErrorCode.MESSAGE_TOO_LARGE)

        await cluster.restart(leader)
        client = await Client.connect(core(cluster).brokers[leader])
        response = await client.call(produce(b"b"), ProduceResponse, PRODUCE_VERSION)
        client.close()

        assert response.responses[0].partition_responses[0].error_code == int(ErrorCode.MESSAGE_TOO_LARGE)
        assert (fault.hits, elsewhere.hits) == (2, 0)
        assert "node" in elsewhere.near_misses

"""Consumers read from the replica in their rack (KIP-392, §15.3.5)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.broker.config.server_cluster import RACK_AWARE_SELECTOR
from ottla.broker.local_cluster import LocalCluster
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.broker.clusters import ask, create_topic, state_of, until
from tests.broker.replicas import ALL, produced, replica, same_everywhere, three_brokers
from tests.broker.wire import client_of, fetch, values_of


@asynccontextmanager
async def racks(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    """Broker 0 leads `t`; each is in a rack of its own."""
    async with three_brokers(tmp_path, replica_selector_class=RACK_AWARE_SELECTOR) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        for broker in cluster.brokers.values():
            # Brokers of one process have one configuration; where they stand is in the metadata.
            image = broker.metadata.image
            placed = {i: replace(each, rack=f"rack-{i}") for i, each in image.brokers.items()}
            broker.metadata.image = image.with_brokers(placed)
        yield cluster


async def fetched(broker: Broker, offset: int = 0, *, version: int = 11, **fields: Any) -> Any:
    async with client_of(broker) as client:
        return await fetch(client, "t", offset, version=version, **fields)


async def test_the_leader_sends_a_consumer_to_its_rack(tmp_path: Path) -> None:
    async with racks(tmp_path) as cluster:
        assert await produced(cluster, b"a") is ErrorCode.NONE
        leader = cluster.brokers[0]

        sent_away = await fetched(leader, rack_id="rack-2", max_wait_ms=9000)
        at_home = await fetched(leader, rack_id="rack-0")
        nowhere = await fetched(leader, rack_id="rack-7")

        assert (sent_away.preferred_read_replica, values_of(sent_away.records)) == (2, [])
        assert (at_home.preferred_read_replica, values_of(at_home.records)) == (-1, [b"a"])
        assert (nowhere.preferred_read_replica, values_of(nowhere.records)) == (-1, [b"a"])


async def test_a_follower_answers_below_its_high_watermark(tmp_path: Path) -> None:
    async with racks(tmp_path) as cluster:
        assert await produced(cluster, b"a", b"b") is ErrorCode.NONE
        await same_everywhere(cluster, 2)
        follower = cluster.brokers[2]

        assert values_of((await fetched(follower)).records) == [b"a", b"b"]
        epoch = replica(follower).leader_epoch
        assert (await fetched(follower, 3, leader_epoch=epoch)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await fetched(follower, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("offset", [-1, 3])
async def test_follower_does_not_say_what_its_leader_lacks(tmp_path: Path, offset: int) -> None:
    """To a consumer that names no leader epoch, and may take it for the leader: it would begin again at offset 0."""
    async with racks(tmp_path) as cluster:
        assert await produced(cluster, b"a", b"b") is ErrorCode.NONE
        await same_everywhere(cluster, 2)

        assert (await fetched(cluster.brokers[2], offset)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await fetched(cluster.brokers[0], offset)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_who_waits_at_a_follower_is_woken_as_soon_as_it_knows(tmp_path: Path) -> None:
    """The leader sends its followers a higher high watermark at once, not with the next records."""
    async with racks(tmp_path) as cluster:
        follower = cluster.brokers[1]
        async with client_of(follower) as client:
            waiting = asyncio.ensure_future(fetch(client, "t", version=11, max_wait_ms=9000))
            await until(lambda: len(follower.replicas.delayed_fetch) >= 1)

            assert await produced(cluster, b"a") is ErrorCode.NONE

            assert values_of((await waiting).records) == [b"a"]


async def test_a_follower_knows_no_offsets(tmp_path: Path) -> None:
    """§15.1.2"""
    async with racks(tmp_path) as cluster:
        asked = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)])

        response = await ask(cluster.brokers[1], request)

        assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_only_a_registered_broker_is_believed_to_be_a_follower(tmp_path: Path) -> None:
    """§3.4, T-25: a claim moves neither the high watermark nor the ISR."""
    async with racks(tmp_path) as cluster:
        leader = cluster.brokers[0]
        for follower in (1, 2):
            cluster.brokers[follower].replicas.stop_fetching()
        assert await produced(cluster, b"a", acks=1) is ErrorCode.NONE

        answer = await fetched(leader, 1, replica_id=7)

        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (replica(leader).high_watermark, state_of(leader).isr) == (0, (0, 1, 2))


async def test_replica_id_on_client_listener_or_old_epoch_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§3.4, §14.1.2: of a broker that is one of this cluster."""
    async with racks(tmp_path) as cluster:
        leader = cluster.brokers[0]
        for follower in (1, 2):
            cluster.brokers[follower].replicas.stop_fetching()
        assert await produced(cluster, b"a", acks=1) is ErrorCode.NONE
        topic = FetchTopic(
            topic_id=leader.image.topics["t"].topic_id,
            partitions=[FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=100)],
        )
        epoch = leader.image.brokers[1].epoch

        def claim(broker_epoch: int) -> FetchRequest:
            state = ReplicaState(replica_id=1, replica_epoch=broker_epoch)
            return FetchRequest(replica_state=state, max_wait_ms=0, topics=[topic])

        assert (await ask(leader, claim(epoch - 1), 17)).error_code == ErrorCode.STALE_BROKER_EPOCH
        with monkeypatch.context() as patch:
            patch.setattr(leader.server, "inter_broker_listener", "OTHER")
            refused = await ask(leader, claim(epoch), 17)
        assert refused.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert replica(leader).leadership.followers[1].log_end_offset < 1

        assert (await ask(leader, claim(epoch), 17)).error_code == ErrorCode.NONE
        assert replica(leader).leadership.followers[1].log_end_offset == 1

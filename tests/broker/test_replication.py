"""Three brokers in one process: what one acknowledges the others have (docs/scenarios.md: R01 to R13)."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.broker.coordinators.hosted_partition import TOO_FEW_REPLICAS_MS
from ottla.broker.local_cluster import LocalCluster
from ottla.cluster.image import CONSUMER_OFFSETS, NO_LEADER, TopicInfo
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.produce import ProduceResponse
from ottla.replication.fetcher import Fetcher
from tests.broker.clusters import ask, create_topic, state_of, until
from tests.broker.replicas import ALL, append, in_sync, leader_of, produced, replica, same_everywhere, three_brokers
from tests.broker.requests import delete_records
from tests.broker.test_group_handlers import codes, commit_request
from tests.broker.wire import batch, client_of, fetch, produce_request, values_of


async def test_acknowledged_by_all_is_on_all(tmp_path: Path) -> None:
    """R06, R08"""
    async with three_brokers(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)

        assert await produced(cluster, b"a", b"b") is ErrorCode.NONE

        assert [replica(broker).log.log_end_offset for broker in cluster.brokers.values()] == [2, 2, 2]
        await same_everywhere(cluster, 2)
        async with client_of(leader_of(cluster)) as client:
            assert values_of((await fetch(client, "t")).records) == [b"a", b"b"]


async def test_a_killed_broker_is_done_without_and_comes_back(tmp_path: Path) -> None:
    """R07, R09, R10, R12"""
    async with three_brokers(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        assert await produced(cluster, b"before") is ErrorCode.NONE

        await cluster.kill_broker(0)
        await until(lambda: cluster.leader_of("t", 0) in (1, 2))
        await in_sync(cluster, 1, 2)
        assert await produced(cluster, b"in its absence") is ErrorCode.NONE
        await cluster.start_broker(0)
        await in_sync(cluster, 0, 1, 2)

        assert await produced(cluster, b"after") is ErrorCode.NONE
        assert state_of(leader_of(cluster)).leader_epoch == 1
        await same_everywhere(cluster, 3)


async def test_everything_is_there_after_a_restart_of_all(tmp_path: Path) -> None:
    """R06: the high watermark survives, too."""
    async with three_brokers(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        assert await produced(cluster, b"a", b"b") is ErrorCode.NONE
        await same_everywhere(cluster, 2)

    async with three_brokers(tmp_path) as cluster:
        await until(lambda: cluster.leader_of("t", 0) is not None)
        assert replica(leader_of(cluster)).high_watermark == 2
        await in_sync(cluster, *ALL)
        assert await produced(cluster, b"c") is ErrorCode.NONE
        await same_everywhere(cluster, 3)


async def test_who_does_not_fetch_leaves_the_in_sync_replicas(tmp_path: Path) -> None:
    """R07, §14.7.1"""
    async with three_brokers(tmp_path, replica_lag_time_max_ms=400) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        cluster.brokers[2].replicas.stop_fetching()

        # All of the ISR is waited for, until the one that lags has left it.
        assert await produced(cluster, b"a") is ErrorCode.NONE

        await in_sync(cluster, 0, 1)
        assert replica(cluster.brokers[2]).log.log_end_offset == 0


async def test_too_few_in_sync_is_refused_before_the_append(tmp_path: Path) -> None:
    """R08"""
    async with three_brokers(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        await cluster.kill_broker(1)
        await cluster.kill_broker(2)
        await in_sync(cluster, 0)

        assert await produced(cluster, b"a") is ErrorCode.NOT_ENOUGH_REPLICAS
        assert replica(cluster.brokers[0]).log.log_end_offset == 0
        assert await produced(cluster, b"b", acks=1) is ErrorCode.NONE
        assert replica(cluster.brokers[0]).high_watermark == 0, "KIP-966: it stands still while the ISR is too small"


async def test_group_that_cannot_be_stored_gets_a_delayed_error(tmp_path: Path) -> None:
    """§4.6.1. It would ask again at once."""
    async with three_brokers(tmp_path, offsets_topic_num_partitions=1) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        cluster.brokers[0].auto_topic_creation.ensure_coordinator_topic(CONSUMER_OFFSETS)
        await until(lambda: cluster.leader_of(CONSUMER_OFFSETS, 0) is not None)
        leader = leader_of(cluster, CONSUMER_OFFSETS)
        for broker in list(cluster.brokers.values()):
            if broker is not leader:
                await cluster.kill_broker(broker.node_id)
        await until(lambda: len(state_of(leader, CONSUMER_OFFSETS).isr) == 1)
        asked = time.monotonic()

        response = await ask(leader, commit_request("g", {("t", 0): 5}), 7)

        assert codes(response) == {("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert time.monotonic() - asked >= TOO_FEW_REPLICAS_MS / 1000


async def test_too_few_in_sync_replicas_fail_after_the_append(tmp_path: Path) -> None:
    """R08, §15.2.3: the records may be committed or not. They become visible when a second replica is back."""
    async with three_brokers(tmp_path, replica_lag_time_max_ms=400) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        leader = cluster.brokers[0]
        for follower in (1, 2):
            cluster.brokers[follower].replicas.stop_fetching()

        async with client_of(leader) as client:
            assert await append(client, b"a", timeout_ms=1500) is ErrorCode.REQUEST_TIMED_OUT
        await in_sync(cluster, 0)
        assert state_of(leader).elr == (1, 2)
        assert replica(leader).high_watermark == 0

        await cluster.kill_broker(1)
        await cluster.start_broker(1)
        await until(lambda: replica(leader).high_watermark == 1)


async def test_a_leader_that_resigns_answers_who_waits(tmp_path: Path) -> None:
    """§14.2.3, §15.2.3"""
    async with three_brokers(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        cluster.brokers[2].replicas.stop_fetching()
        leader = cluster.brokers[0]

        async with client_of(leader) as client:
            client.send(produce_request("t", batch(b"a"), acks=-1, timeout_ms=60_000), 9)
            await until(lambda: len(leader.replicas.delayed_produce) == 1)
            leader.replicas.apply_partition_state(_led_by(leader, 1), 0)
            leader.runtime.end_event()
            response = await client.receive(ProduceResponse, 9)

        (answer,) = response.responses[0].partition_responses
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def _led_by(broker: Broker, leader: int) -> TopicInfo:
    """What the metadata would say of the topic."""
    topic = broker.image.topics["t"]
    (state,) = topic.partitions
    after = replace(state, leader=leader, leader_epoch=7, partition_epoch=state.partition_epoch + 1)
    return replace(topic, partitions=(after,))


async def test_offline_rather_than_losing_data(tmp_path: Path) -> None:
    """R13"""
    async with three_brokers(tmp_path, min_insync_replicas=1) as cluster:
        await create_topic(cluster.brokers[0], "t", [0, 1])
        await cluster.kill_broker(1)
        await in_sync(cluster, 0)
        assert await produced(cluster, b"only here") is ErrorCode.NONE
        await cluster.kill_broker(0)
        await cluster.start_broker(1)

        await until(lambda: state_of(cluster.brokers[2]).leader == NO_LEADER)
        assert (await produced_at(cluster, 1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER

        await cluster.start_broker(0)
        await until(lambda: cluster.leader_of("t", 0) == 0)
        await in_sync(cluster, 0, 1)
        await until(lambda: replica(cluster.brokers[1]).high_watermark == 1)


async def produced_at(cluster: LocalCluster, node_id: int) -> ErrorCode:
    async with client_of(cluster.brokers[node_id]) as client:
        return await append(client, b"x")


async def test_records_are_deleted_on_all_replicas(tmp_path: Path) -> None:
    """§15.6.1"""
    async with three_brokers(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        for value in (b"a", b"b", b"c"):
            assert await produced(cluster, value) is ErrorCode.NONE

        response = await ask(leader_of(cluster), delete_records("t", 0, 2))

        (result,) = response.topics[0].partitions
        assert (result.error_code, result.low_watermark) == (0, 2)
        assert [replica(broker).log.log_start_offset for broker in cluster.brokers.values()] == [2, 2, 2]


async def test_a_deletion_waits_for_a_replica_that_does_not_fetch(tmp_path: Path) -> None:
    """§15.6.1"""
    async with three_brokers(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        assert await produced(cluster, b"a") is ErrorCode.NONE
        await same_everywhere(cluster, 1)
        cluster.brokers[2].replicas.stop_fetching()

        request = delete_records("t", 0, 1)
        request.timeout_ms = 300
        response = await ask(leader_of(cluster), request)

        (result,) = response.topics[0].partitions
        assert (result.error_code, result.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)


async def test_a_fetch_of_a_consumer_waits_for_the_followers(tmp_path: Path) -> None:
    """R06: consumers never see a record above the high watermark."""
    async with three_brokers(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        cluster.brokers[2].replicas.stop_fetching()
        assert await produced(cluster, b"a", acks=1) is ErrorCode.NONE

        async with client_of(leader_of(cluster)) as client:
            assert values_of((await fetch(client, "t")).records) == []
            await cluster.kill_broker(2)
            # The fetch completes when the killed follower has left the ISR.
            assert values_of((await fetch(client, "t", max_wait_ms=9000)).records) == [b"a"]


async def test_malformed_response_does_not_end_a_fetcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R01: it begins again, with a new connection and a new session."""
    async with three_brokers(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        answered = Fetcher.handle_response
        failures = 5

        def fail_at_first(fetcher: Fetcher, *arguments: Any, **named: Any) -> Any:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise ValueError("a bug")
            return answered(fetcher, *arguments, **named)

        monkeypatch.setattr(Fetcher, "handle_response", fail_at_first)

        assert await produced(cluster, b"a") is ErrorCode.NONE
        await same_everywhere(cluster, 1)
        assert failures < 0


async def test_a_broker_that_stops_cleanly_hands_over_without_an_error(tmp_path: Path) -> None:
    """R09: the others lead what it led before it is gone, and its log is complete."""
    async with three_brokers(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        assert await produced(cluster, b"a") is ErrorCode.NONE

        assert await cluster.stop_broker(0)

        assert cluster.leader_of("t", 0) in (1, 2)
        await in_sync(cluster, 1, 2)
        assert await produced(cluster, b"b") is ErrorCode.NONE
        await cluster.start_broker(0)
        await in_sync(cluster, *ALL)
        await same_everywhere(cluster, 2)


async def test_a_new_leader_endpoint_is_followed(tmp_path: Path) -> None:
    """R01: a fetcher whose leader is reached elsewhere is replaced."""
    async with three_brokers(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        assert await produced(cluster, b"a") is ErrorCode.NONE
        await cluster.stop_broker(0)
        cluster._listen_on[0] = ("127.0.0.1", 0)
        await cluster.start_broker(0)
        await in_sync(cluster, *ALL)
        await ask(cluster.brokers[1], preferred("t"))
        await until(lambda: replica(cluster.brokers[0]).is_leader)

        assert await produced(cluster, b"b") is ErrorCode.NONE
        await same_everywhere(cluster, 2)


def preferred(topic: str) -> ElectLeadersRequest:
    asked = [TopicPartitions(topic=topic, partitions=[0])]
    return ElectLeadersRequest(election_type=0, topic_partitions=asked, timeout_ms=5000)

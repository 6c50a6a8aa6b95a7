"""A client of the wrong broker gets the leader, its epoch, and its address of the same listener (KIP-951)."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from ottla.broker.broker import Broker
from ottla.broker.local_cluster import LocalCluster
from ottla.broker.replicas.current_leader import in_doubt
from ottla.cluster.image import NO_LEADER, BrokerInfo, BrokerState, Listener, PartitionInfo, TopicInfo
from ottla.protocol.errors import ErrorCode, error_for
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from ottla.protocol.messages.produce import ProduceResponse
from tests.broker.asking import Client
from tests.broker.clusters import ask, create_topic, state_of, until
from tests.broker.replicas import ALL, replica, three_brokers
from tests.broker.test_elect_leaders import PREFERRED, codes, election, reorder
from tests.broker.test_listeners import running as two_listeners
from tests.broker.wire import batch, client_of, produce_request, running_broker
from tests.broker.wire import create_topic as create_topic_of_one
from tests.cluster.images import with_broker

PRODUCE_VERSIONS = [10, 11]
FETCH_VERSIONS = [16, 17]
TOPIC_ID = bytes(range(16))
LED_BY_2, ALSO_LED_BY_2, LED_BY_3, WITHOUT_LEADER = range(4)
NOT_LEADER, FENCED = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH


class Found(NamedTuple):
    """Error code, leader and its epoch of each partition; node id, host, port and rack of each endpoint."""

    partitions: list[tuple[int, int, int] | int]
    endpoints: list[tuple[int, str, int, str | None]]


def found(response: Any) -> Found:
    (topic,) = response.responses
    answers = topic.partition_responses if isinstance(response, ProduceResponse) else topic.partitions
    return Found(
        [
            each.error_code
            if each.current_leader is None
            else (each.error_code, each.current_leader.leader_id, each.current_leader.leader_epoch)
            for each in answers
        ],
        [(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints],
    )


def fetch_request(topic: str, topic_id: bytes, indexes: Sequence[int], epoch: int = -1, **fields: Any) -> FetchRequest:
    partitions = [
        FetchPartition(partition=index, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in indexes
    ]
    return FetchRequest(topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)], **fields)


# What a broker answers about partitions that others lead.


async def produced(client: Client, version: int, *indexes: int) -> Found:
    """`indexes` follow each other."""
    request = produce_request("elsewhere", *[batch(b"x")] * len(indexes), index=indexes[0])
    return found(await client.ask(request, version))


async def fetched(client: Client, version: int, *indexes: int) -> Found:
    return found(await client.ask(fetch_request("elsewhere", TOPIC_ID, indexes), version))


Ask = Callable[..., Awaitable[Found]]
BOTH = pytest.mark.parametrize(
    ("asked", "version"),
    [(produced, version) for version in PRODUCE_VERSIONS] + [(fetched, version) for version in FETCH_VERSIONS],
)


def another(node_id: int, rack: str | None = None) -> BrokerInfo:
    inside = Listener("INSIDE", f"inside-{node_id}.example", 9092)
    outside = Listener("OUTSIDE", f"outside-{node_id}.example", 19092)
    return BrokerInfo(node_id, inside.host, inside.port, rack, listeners=(inside, outside))


@asynccontextmanager
async def others_lead(tmp_path: Path) -> AsyncIterator[tuple[Broker, Client, Client]]:
    """The broker, which knows of brokers 2 and 3 and their topic; a client by each of its listeners."""
    async with two_listeners(tmp_path) as (broker, inside, outside):
        leaders = {LED_BY_2: 2, ALSO_LED_BY_2: 2, LED_BY_3: 3, WITHOUT_LEADER: NO_LEADER}
        partitions = [PartitionInfo(leader, 5 + index, 1, (2, 3), (2, 3)) for index, leader in leaders.items()]
        topic = TopicInfo("elsewhere", TOPIC_ID, tuple(partitions))
        image = broker.image.with_brokers({2: another(2, rack="r"), 3: another(3)})
        broker.metadata.image = image.with_topics({topic.name: topic})
        yield broker, inside, outside


@BOTH
async def test_the_address_is_that_of_the_listener_the_client_came_by(tmp_path: Path, asked: Ask, version: int) -> None:
    async with others_lead(tmp_path) as (_, inside, outside):
        by_inside, by_outside = [await asked(client, version, LED_BY_2) for client in (inside, outside)]

    assert by_inside == Found([(NOT_LEADER, 2, 5)], [(2, "inside-2.example", 9092, "r")])
    assert by_outside == Found([(NOT_LEADER, 2, 5)], [(2, "outside-2.example", 19092, "r")])


@BOTH
async def test_each_leaders_address_is_sent_once(tmp_path: Path, asked: Ask, version: int) -> None:
    async with others_lead(tmp_path) as (_, inside, _):
        answer = await asked(inside, version, LED_BY_2, ALSO_LED_BY_2, LED_BY_3, WITHOUT_LEADER)

    assert answer.partitions == [
        (NOT_LEADER, 2, 5),
        (NOT_LEADER, 2, 6),
        (NOT_LEADER, 3, 7),
        (NOT_LEADER, NO_LEADER, 8),
    ]
    assert answer.endpoints == [(2, "inside-2.example", 9092, "r"), (3, "inside-3.example", 9092, None)]


@BOTH
async def test_without_a_leader_there_is_no_address(tmp_path: Path, asked: Ask, version: int) -> None:
    async with others_lead(tmp_path) as (_, inside, _):
        assert await asked(inside, version, WITHOUT_LEADER) == Found([(NOT_LEADER, NO_LEADER, 8)], [])


@pytest.mark.parametrize(
    "out_of_reach",
    [
        {"listeners": (Listener("INSIDE", "inside-2.example", 9092),)},
        {"state": BrokerState.FENCED},
    ],
)
@BOTH
async def test_leader_without_the_clients_listener_has_no_address(
    tmp_path: Path, asked: Ask, version: int, out_of_reach: dict[str, Any]
) -> None:
    async with others_lead(tmp_path) as (broker, _, outside):
        broker.metadata.image = with_broker(broker.image, replace(another(2), **out_of_reach))

        assert await asked(outside, version, LED_BY_2) == Found([(NOT_LEADER, 2, 5)], [])


@pytest.mark.parametrize(("asked", "version"), [(produced, 9), (fetched, 11), (fetched, 12), (fetched, 15)])
async def test_older_versions_get_the_error_alone(tmp_path: Path, asked: Ask, version: int) -> None:
    async with others_lead(tmp_path) as (_, inside, _):
        assert await asked(inside, version, LED_BY_2) == Found([NOT_LEADER], [])


@BOTH
async def test_other_errors_name_no_leader(tmp_path: Path, asked: Ask, version: int) -> None:
    async with others_lead(tmp_path) as (_, inside, _):
        assert await asked(inside, version, 7) == Found([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], [])


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
async def test_a_broker_that_has_resigned_does_not_name_itself(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic_of_one(client, "t")
        broker.replicas.step_down()

        answer = await client.call(produce_request("t", batch(b"x")), ProduceResponse, version)

        assert state_of(broker).leader == broker.node_id
        assert found(answer) == Found([(NOT_LEADER, NO_LEADER, state_of(broker).leader_epoch)], [])


# While a leader moves.


@asynccontextmanager
async def cluster_of_three(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    """Broker 0 leads `t`."""
    async with three_brokers(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        await until(lambda: all("t" in each.image.topics for each in cluster.brokers.values()))
        yield cluster


async def move_leader(cluster: LocalCluster) -> None:
    """From broker 0 to broker 1, which all know of then."""
    await reorder(cluster.brokers[0], (1, 0, 2))
    assert set(codes(await ask(cluster.brokers[0], election(PREFERRED, 0))).values()) == {ErrorCode.NONE}
    await until(lambda: all(state_of(each).leader == 1 for each in cluster.brokers.values()))


def leader_1(cluster: LocalCluster, code: ErrorCode) -> Found:
    """What broker 0 has to answer after the move."""
    host, _, port = cluster.brokers[1].bootstrap.rpartition(":")
    return Found([(code, 1, state_of(cluster.brokers[0]).leader_epoch)], [(1, host, int(port), None)])


def fetch_of_t(cluster: LocalCluster, **fields: Any) -> FetchRequest:
    return fetch_request("t", cluster.brokers[0].image.topics["t"].topic_id, [0], **fields)


async def test_old_leader_names_the_new_one(tmp_path: Path) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        old, bystander = cluster.brokers[0], cluster.brokers[2]
        before = state_of(old).leader_epoch
        follower = ReplicaState(replica_id=2, replica_epoch=old.image.brokers[2].epoch)
        await move_leader(cluster)

        for asked in (old, bystander):
            assert found(await ask(asked, produce_request("t", batch(b"x")), 12)) == leader_1(cluster, NOT_LEADER)
            assert found(await ask(asked, fetch_of_t(cluster, epoch=before))) == leader_1(cluster, FENCED)
        fetch = fetch_of_t(cluster, epoch=before, replica_state=follower)
        assert found(await ask(old, fetch)) == leader_1(cluster, FENCED)
        fetch = fetch_of_t(cluster, replica_state=follower)
        assert found(await ask(old, fetch)) == leader_1(cluster, NOT_LEADER)


async def test_new_leader_names_itself_to_consumer_with_old_epoch(tmp_path: Path) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        before = state_of(cluster.brokers[0]).leader_epoch
        await move_leader(cluster)

        answer = await ask(cluster.brokers[1], fetch_of_t(cluster, epoch=before))

        assert found(answer) == leader_1(cluster, FENCED)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
async def test_producer_waiting_for_acks_gets_the_new_leader(tmp_path: Path, version: int) -> None:
    """§15.2.3"""
    async with cluster_of_three(tmp_path) as cluster:
        old = cluster.brokers[0]
        cluster.brokers[2].replicas.stop_fetching()
        async with client_of(old) as client:
            client.send(produce_request("t", batch(b"x"), timeout_ms=60_000), version)
            await until(lambda: len(old.replicas.delayed_produce) == 1)

            await move_leader(cluster)
            answer = await client.receive(ProduceResponse, version)

        assert found(answer) == leader_1(cluster, NOT_LEADER)


@pytest.mark.parametrize("node_id", [0, 2])
@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_consumer_waiting_for_records_gets_the_new_leader(tmp_path: Path, version: int, node_id: int) -> None:
    """At the old leader, and at a follower."""
    async with cluster_of_three(tmp_path) as cluster:
        asked = cluster.brokers[node_id]
        async with client_of(asked) as client:
            epoch = state_of(asked).leader_epoch
            client.send(fetch_of_t(cluster, epoch=epoch, max_wait_ms=60_000, min_bytes=1), version)
            # Fetches of followers wait for their sessions.
            await until(lambda: replica(asked) in asked.replicas.delayed_fetch._watchers)

            await move_leader(cluster)
            answer = await client.receive(FetchResponse, version)

        assert found(answer) == leader_1(cluster, FENCED)


@pytest.mark.parametrize(
    ("code", "is_in_doubt"),
    [
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, True),
        (ErrorCode.INVALID_PRODUCER_EPOCH, True),
        (ErrorCode.TRANSACTION_ABORTABLE, True),
        (ErrorCode.MESSAGE_TOO_LARGE, False),
    ],
)
def test_what_another_leader_may_know_is_no_refusal_for_good(code: ErrorCode, is_in_doubt: bool) -> None:
    """To a broker that was cut off for longer than its session, the epoch of a producer may be a newer one."""
    refused = error_for(code, "refused")
    lasting, over = (SimpleNamespace(session_is_over=lambda is_over=is_over: is_over) for is_over in (False, True))

    assert in_doubt(lasting, refused) is refused
    assert in_doubt(over, refused).code is (NOT_LEADER if is_in_doubt else code)

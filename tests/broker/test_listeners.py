"""A broker with several listeners: every client gets the addresses of the one it connected to."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla import Broker as EmbeddedBroker
from ottla import Cluster
from ottla.broker.broker import Broker
from ottla.broker.config.options import ConfigError
from ottla.broker.config.server import ServerConfig
from ottla.broker.runtime import StartError
from ottla.broker.server.listeners import Listeners
from ottla.cli.operations.serve import _ready_line
from ottla.cluster.image import Listener
from ottla.protocol.errors import ErrorCode
from tests.broker.asking import QUICK, Client, messages
from tests.cluster.images import with_broker

metadata = messages("metadata")
describe_cluster = messages("describe_cluster")
describe_topic_partitions = messages("describe_topic_partitions")
find_coordinator = messages("find_coordinator")
create_topics = messages("create_topics")
configs = messages("describe_configs")

TWO = {
    **QUICK,
    "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "advertised.listeners": "INSIDE://inside.example:9092,OUTSIDE://outside.example:19092",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
}
INSIDE, OUTSIDE = ("inside.example", 9092), ("outside.example", 19092)


@asynccontextmanager
async def running(data_dir: Path) -> AsyncIterator[tuple[Broker, Client, Client]]:
    """The broker, a client by the first listener, and one by the second."""
    broker = Broker(ServerConfig(TWO), data_dir=data_dir, node_id=1)
    await broker.start()
    clients = [Client(*await asyncio.open_connection(each.host, each.port)) for each in broker.listeners.opened]
    try:
        yield broker, clients[0], clients[1]
    finally:
        for client in clients:
            await client.close()
        await broker.stop()


async def create_topic(client: Client) -> None:
    topic = create_topics.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    response = await client.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
    assert response.topics[0].error_code == 0


def addresses(response: Any) -> list[tuple[str, int]]:
    return [(each.host, each.port) for each in response.brokers]


async def coordinator(client: Client) -> tuple[str, int]:
    request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"])
    while (found := (await client.ask(request, 4)).coordinators[0]).error_code:
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    return found.host, found.port


async def test_responses_name_the_address_of_the_clients_listener(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, inside, outside):
        for client, address in ((inside, INSIDE), (outside, OUTSIDE)):
            for _ in range(2):  # Metadata is answered from a cache the second time.
                assert addresses(await client.ask(metadata.MetadataRequest(topics=[]), 12)) == [address]
            assert addresses(await client.ask(describe_cluster.DescribeClusterRequest(), 1)) == [address]
            assert await coordinator(client) == address


async def test_the_registration_has_all_listeners(tmp_path: Path) -> None:
    async with running(tmp_path) as (broker, _, _):
        info = broker.image.brokers[1]

        assert info.listeners == (Listener("INSIDE", *INSIDE), Listener("OUTSIDE", *OUTSIDE))
        assert (info.host, info.port) == INSIDE
        assert broker.bootstrap == "inside.example:9092"


async def test_ready_line_has_every_listener_behind_its_first_fields(tmp_path: Path) -> None:
    async with running(tmp_path) as (broker, _, _):
        ready = _ready_line(broker)

    assert re.fullmatch(
        r"ready bootstrap=inside.example:9092 cluster_id=\S{22} startup_ms=\d+ "
        r"listeners=INSIDE://inside.example:9092,OUTSIDE://outside.example:19092",
        ready,
    )


async def test_clients_look_up_the_listeners_as_configs(tmp_path: Path) -> None:
    async with running(tmp_path) as (broker, inside, _):
        names = ["listeners", "advertised.listeners"]
        resource = configs.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=names)
        response = await inside.ask(configs.DescribeConfigsRequest(resources=[resource]), 4)

        assert [(each.name, each.value) for each in response.results[0].configs] == [
            ("listeners", ",".join(map(str, broker.listeners.opened))),
            ("advertised.listeners", TWO["advertised.listeners"]),
        ]


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (12, ErrorCode.LISTENER_NOT_FOUND)])
async def test_a_leader_without_the_listener_is_out_of_reach(tmp_path: Path, version: int, code: ErrorCode) -> None:
    """As Kafka answers while listeners are rolled out over the brokers of a cluster."""
    async with running(tmp_path) as (broker, inside, outside):
        await create_topic(inside)
        await coordinator(inside)
        without = replace(broker.image.brokers[1], listeners=(Listener("INSIDE", *INSIDE),))
        broker.metadata.image = with_broker(broker.image, without)
        asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")])

        response = await outside.ask(asked, version)
        (partition,) = response.topics[0].partitions
        assert (response.brokers, partition.leader_id, partition.error_code) == ([], -1, code)
        found = await outside.ask(find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        assert found.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        topics = [describe_topic_partitions.TopicRequest(name="t")]
        described = await outside.ask(describe_topic_partitions.DescribeTopicPartitionsRequest(topics=topics), 0)
        assert described.topics[0].partitions[0].error_code == ErrorCode.LISTENER_NOT_FOUND
        assert addresses(await inside.ask(asked, version)) == [INSIDE]


async def test_a_start_that_fails_at_one_listener_leaves_none_open(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as reserved:
        port, free = taken.getsockname()[1], reserved.getsockname()[1]
        reserved.close()
        settings = {"listeners": f"PLAINTEXT://127.0.0.1:{free},B://127.0.0.1:{port}"}
        mapped = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT"}

        with pytest.raises(StartError, match=f"^cannot listen on 127.0.0.1:{port}: "):
            await Broker(ServerConfig(settings | mapped), data_dir=tmp_path).start()

        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", free)


async def test_an_embedded_broker_has_the_listeners_of_its_settings() -> None:
    settings = {**TWO, "advertised.listeners": ""}
    async with EmbeddedBroker(settings=settings) as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        assert addresses(await client.ask(metadata.MetadataRequest(topics=[]), 12)) == [(host, int(port))]
        await client.close()


async def test_brokers_in_one_process_cannot_share_listeners() -> None:
    with pytest.raises(ConfigError, match=r"^listeners are those of one broker"):
        await Cluster(brokers=2, settings=TWO).start()


def test_an_address_beside_listeners_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^listeners and --listen both say where to listen"):
        Broker(ServerConfig({"listeners": "PLAINTEXT://:0"}), data_dir=tmp_path, port=0)


@pytest.mark.parametrize(
    ("url", "reached"),
    [
        ("http://0.0.0.0:9644", "http://inside.example:9644"),
        ("http://[::]:9644", "http://inside.example:9644"),
        ("http://127.0.0.1:9644", "http://127.0.0.1:9644"),
        ("http://[::1]:9644", "http://[::1]:9644"),
    ],
)
def test_admin_listener_is_known_by_a_host_that_others_reach(url: str, reached: str) -> None:
    listeners = Listeners(ServerConfig({name: str(value) for name, value in TWO.items()}))

    listeners.admin_opened(url)

    assert listeners.admin_url == reached


async def test_registration_says_where_the_admin_listener_is() -> None:
    async with EmbeddedBroker(settings={**QUICK, "ottla.admin.listener": "127.0.0.1:0"}) as broker:
        core = broker._core
        assert core is not None
        assert core.image.brokers[core.node_id].admin_url == core.admin_url
        assert core.admin_url.startswith("http://127.0.0.1:")

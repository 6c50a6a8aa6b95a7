"""Whole brokers that are probed while they recover, serve, lose their session and stop (docs/operators.md §3)."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.request import urlopen

import pytest

from ottla.broker.broker import Broker, StartError
from ottla.broker.config.server import ServerConfig
from ottla.broker.server.network import TcpNetwork
from ottla.cli import health
from ottla.cluster.image import BrokerState
from ottla.protocol.errors import KafkaStorageError
from tests.broker.admin.pages import Answer, connect, get
from tests.broker.clusters import create_topic, running_cluster
from tests.broker.virtual_cluster import SESSION_MS, Cluster, Node
from tests.broker.wire import RecordingLog, running_broker
from tests.fakes.disk import FakeDisk
from tests.simulation.network import Conditions

pytestmark = pytest.mark.usefixtures("roomy_disk")

PAGES = ("/health/startup", "/health/live", "/health/ready")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.loop.close()


def url(node_id: int) -> str:
    return f"http://broker-{node_id}:9644"


def listener(node_id: int) -> dict[str, object]:
    return {"ottla_admin_listener": url(node_id).removeprefix("http://")}


async def started(cluster: Cluster, *node_ids: int, **settings: object) -> list[Node]:
    nodes = [cluster.boot(node_id, **listener(node_id), **settings) for node_id in node_ids]
    for node in nodes:
        await node.started
    await cluster.until(lambda: all(node.broker.image.active_brokers >= {*node_ids} for node in nodes))
    return nodes


async def statuses(cluster: Cluster, node_id: int) -> list[int]:
    return [(await get(cluster.network, url(node_id), page)).status for page in PAGES]


async def ready(cluster: Cluster, node_id: int) -> Answer:
    return await get(cluster.network, url(node_id), "/health/ready")


def test_op01_broker_that_recovers_is_alive_and_not_ready(cluster: Cluster) -> None:
    """While its data is opened, which takes long here, and while it waits for its place in the cluster."""

    async def story() -> None:
        cluster.loop._executor_delay_us = lambda: 3_000_000  # type: ignore[attr-defined]
        node = cluster.boot(1, **listener(1))
        await cluster.until(lambda: ("broker-1", 9644) in cluster.network.listeners)
        client = await connect(cluster.network, url(1))
        live, startup = await client.get("/health/live"), await client.get("/health/startup")
        assert not node.started.done()
        await node.started

        assert (live.status, startup.status) == (200, 503)
        assert startup.json["status"] == "starting"
        assert await statuses(cluster, 1) == [200, 200, 200]
        await cluster.stop(node)

    cluster.run(story())


def test_op02_store_that_is_away_leaves_brokers_ready(cluster: Cluster) -> None:
    async def story() -> None:
        first, second = await started(cluster, 1, 2)
        cuts = cluster.cut_off(first)
        await cluster.until(lambda: not first.broker.lifecycle.store_answers, 4 * SESSION_MS)
        answer = await ready(cluster, 1)
        assert (answer.status, answer.json["status"]) == (200, "degraded")
        assert answer.failing() == ["metadata store"]
        assert (await get(cluster.network, url(1), "/health/live")).status == 200
        unknown = await get(cluster.network, url(1), "/health/restart-safe?broker=2")
        assert (unknown.status, unknown.json["status"]) == (503, "unknown")

        await cluster.until(lambda: second.broker.image.brokers[1].state is BrokerState.FENCED, 4 * SESSION_MS)
        cluster.links.heal(*cuts)
        await cluster.until(lambda: first.state is BrokerState.FENCED, 4 * SESSION_MS)
        answer = await ready(cluster, 1)
        assert (answer.status, answer.failing()[0]) == (503, "membership")
        await cluster.until(lambda: first.state is BrokerState.ACTIVE, 4 * SESSION_MS)
        assert (await ready(cluster, 1)).status == 200
        await cluster.stop_all(first, second)

    cluster.run(story())


def test_op03_after_a_kill_the_others_may_not_be_stopped(cluster: Cluster) -> None:
    async def story() -> None:
        first, second, third = await started(cluster, 1, 2, 3)
        await cluster.create(first, "t", 4, 3, min_insync_replicas="2")
        safe = await get(cluster.network, url(1), "/health/restart-safe?broker=3")
        assert (safe.status, safe.json["status"]) == (200, "safe")

        cluster.kill(third)
        await cluster.until(lambda: all(first.partition("t", i).isr in ((1, 2), (2, 1)) for i in range(4)))
        for asked in (1, 2):
            assert (await ready(cluster, asked)).status == 200
            answer = await get(cluster.network, url(asked), f"/health/restart-safe?broker={3 - asked}")
            assert (answer.status, answer.json["partitions_at_risk"]) == (503, 4)
            assert {each["topic"] for each in answer.json["partitions"]} == {"t"}
        again = cluster.boot(3, third.disk, **listener(3))
        await again.started
        await cluster.until(lambda: all(len(first.partition("t", i).isr) == 3 for i in range(4)))
        await cluster.until(lambda: all(len(second.partition("t", i).isr) == 3 for i in range(4)))
        assert (await get(cluster.network, url(2), "/health/restart-safe")).status == 200
        await cluster.stop_all(again, second, first)

    cluster.run(story())


def test_op05_broker_that_stops_is_unready_before_it_hands_over(cluster: Cluster) -> None:
    async def story() -> None:
        first, second = await started(cluster, 1, 2)
        await cluster.create(first, "t", 4, 2)
        cluster.network.draw_conditions = lambda _: Conditions(latency_us=(10, 10))
        client = await connect(cluster.network, url(1))
        assert (await client.get("/health/ready")).status == 200
        led = [index for index in range(4) if first.partition("t", index).leader == 1]
        stopping = cluster.loop.create_task(first.broker.stop(), context=first.context)
        answer = await client.get("/health/ready")
        assert led
        assert led == [index for index in range(4) if first.partition("t", index).leader == 1]
        assert (answer.status, answer.failing()[0]) == (503, "serving")
        while not client.closed.done():
            with contextlib.suppress(AssertionError):
                assert (await client.get("/health/live")).status == 200
        assert await stopping
        assert ("broker-1", 9644) not in cluster.network.listeners
        assert len(first.broker.runtime.wheel) == 0
        await cluster.stop(second)

    cluster.run(story())


def test_op04_caught_up_gate_waits_for_the_isr_once(cluster: Cluster) -> None:
    async def story() -> None:
        first, second = await started(cluster, 1, 2)
        await cluster.create(first, "t", 2, 2)
        disk: FakeDisk = second.disk
        cluster.kill(second)
        await cluster.until(lambda: first.partition("t", 0).isr == (1,), 4 * SESSION_MS)
        again = cluster.boot(2, disk, **listener(2), ottla_health_ready_requires="caught-up")
        await again.started
        answer = await ready(cluster, 2)
        in_sync = [2 in again.partition("t", index).isr for index in range(2)]
        assert answer.status == (200 if all(in_sync) else 503)
        await cluster.until(lambda: all(2 in again.partition("t", index).isr for index in range(2)))
        assert (await ready(cluster, 2)).status == 200
        await cluster.stop_all(again, first)

    cluster.run(story())


def test_lateness_of_an_idle_loop_is_seen_four_times_a_second(cluster: Cluster) -> None:
    """docs/operators.md §4.5: else the loop of an idle broker could be late for seconds unseen. Where no one asks for
    metrics it is left alone."""

    async def story() -> None:
        (node,) = await started(cluster, 1)
        wheel = node.broker.runtime.wheel
        before = wheel.lateness.count
        await asyncio.sleep(10)
        unscraped = wheel.lateness.count - before
        assert (await get(cluster.network, url(1), "/metrics")).status == 200
        before = wheel.lateness.count
        await asyncio.sleep(10)
        assert unscraped < 40 <= wheel.lateness.count - before
        await cluster.stop(node)

    cluster.run(story())


def test_listener_ends_with_a_start_that_fails(cluster: Cluster) -> None:
    async def story() -> None:
        (there,) = await started(cluster, 1)
        node = cluster.boot(1, host="elsewhere", ottla_admin_listener="elsewhere:9644")
        await cluster.until(lambda: ("elsewhere", 9644) in cluster.network.listeners)
        with pytest.raises(StartError):
            await node.started
        assert ("elsewhere", 9644) not in cluster.network.listeners
        await cluster.stop(there)

    cluster.run(story())


async def test_broker_without_the_property_has_no_listener(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        assert broker.admin_url == ""


async def test_disk_call_that_does_not_return_makes_unready(tmp_path: Path) -> None:
    # No real call takes so long.
    settings = {"ottla_admin_listener": "127.0.0.1:0", "ottla_health_disk_stall_ms": 600_000}
    async with running_broker(tmp_path, **settings) as broker:
        assert (await get(TcpNetwork(), broker.admin_url, "/health/ready")).status == 200
        stuck = broker.runtime.loop.create_future()
        broker.runtime._works[stuck] = broker.runtime.clock.now_ms() - 600_001
        answer = await get(TcpNetwork(), broker.admin_url, "/health/ready")
        broker.runtime._works[stuck] = None
        assert (answer.status, answer.failing()) == (503, ["disk"])
        assert (await get(TcpNetwork(), broker.admin_url, "/health/ready")).status == 200
        del broker.runtime._works[stuck]


async def test_failed_log_is_degraded_and_failed_checkpoint_unready(tmp_path: Path) -> None:
    async with running_broker(tmp_path, ottla_admin_listener="127.0.0.1:0") as broker:
        await create_topic(broker, "t", [0], [0])
        (log, _) = broker.log_directory.logs.values()
        log._local.failure = KafkaStorageError("the disk is gone")
        answer = await get(TcpNetwork(), broker.admin_url, "/health/ready")
        log._local.failure = None
        assert (answer.status, answer.failing()) == (200, ["logs"])
        broker.parts.checkpoints._high_watermarks.has_failed = True
        answer = await get(TcpNetwork(), broker.admin_url, "/health/ready")
        assert (answer.status, answer.failing()) == (503, ["data"])


async def test_brokers_of_a_process_share_a_listener(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 2, ottla_admin_listener="127.0.0.1:0") as cluster:
        network = TcpNetwork()
        assert (await get(network, cluster.admin_url, "/health/ready?broker=1")).json["broker"] == 1
        await cluster.stop_broker(1)
        assert (await get(network, cluster.admin_url, "/health/live?broker=1")).status == 503
        assert (await get(network, cluster.admin_url, "/health/ready")).json["broker"] == 1
        assert (await get(network, cluster.admin_url, "/health/ready?broker=0")).status == 200
        assert (await get(network, cluster.admin_url, "/health/ready?broker=7")).status == 404
        await cluster.start_broker(1)
        assert (await get(network, cluster.admin_url, "/health/live")).status == 200


def ask(url: str) -> int:
    return health.run(health.HealthQuestion(url))


async def test_health_command_reports_by_its_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running_broker(tmp_path, ottla_admin_listener="127.0.0.1:0") as broker:
        assert await asyncio.to_thread(ask, broker.admin_url) == 0
        broker.life.phase = SimpleNamespace(value="stopping")  # type: ignore[assignment]
        assert await asyncio.to_thread(ask, broker.admin_url + "/health/ready") == health.NOT_HEALTHY
        assert await asyncio.to_thread(ask, broker.admin_url + "/health/live") == 0
        address = broker.admin_url
    assert await asyncio.to_thread(ask, address) == health.NO_ANSWER
    assert capsys.readouterr().out == "ready\nnot ready; serving: the broker is stopping\nalive\n"


async def test_urllib_reads_the_page(tmp_path: Path) -> None:
    async with running_broker(tmp_path, ottla_admin_listener="127.0.0.1:0") as broker:
        with await asyncio.to_thread(urlopen, broker.admin_url + "/health/startup") as response:
            assert json.load(response)["checks"][0]["name"] == "started"


async def test_address_that_cannot_be_had_ends_the_start(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "a", ottla_admin_listener="127.0.0.1:0") as broker:
        config = ServerConfig({"ottla.admin.listener": broker.admin_url.removeprefix("http://")})
        with pytest.raises(StartError, match=r"ottla\.admin\.listener"):
            await Broker(config, data_dir=tmp_path / "b", port=0, log=RecordingLog()).start()

"""`/api/v1/node/*`: what only a broker itself knows of its clients (docs/operators.md §2.5)."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.admin import node_view
from ottla.broker.admin.node_view import NodeView, listed
from ottla.broker.broker import Broker
from ottla.broker.server.network import TcpNetwork
from ottla.coordinator.classic.states import GroupState
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker import asking
from tests.broker.admin.pages import Answer, connect, get
from tests.broker.test_group_handlers import found, joined, stable
from tests.broker.wire import client_of, create_topic, fetch_request, running_broker, until

pytestmark = pytest.mark.usefixtures("roomy_disk")

ON_LOOPBACK = {"ottla_admin_listener": "127.0.0.1:0"}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, **ON_LOOPBACK) as broker:
        yield broker


async def page(broker: Broker, name: str, query: str = "") -> Any:
    answer = await get(TcpNetwork(), broker.admin_url, f"/api/v1/node/{name}{query}")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    return answer.json


async def test_connections_name_client_software_and_hold(broker: Broker) -> None:
    async with client_of(broker) as client, client_of(broker) as silent:
        request = ApiVersionsRequest(client_software_name="lib", client_software_version="1.2")
        client.send(request, 3, client_id="payments")
        await client.receive(ApiVersionsResponse, 3)
        await until(broker, lambda: len(broker.server.connections) == 2)
        ports = {each: each.writer.get_extra_info("sockname")[1] for each in (client, silent)}
        rows = {row["port"]: row for row in (await page(broker, "connections"))["connections"]}

        known = rows[ports[client]]
        assert (known["host"], known["listener"], known["broker"]) == ("127.0.0.1", "PLAINTEXT", broker.node_id)
        assert (known["client_id"], known["software_name"], known["software_version"]) == ("payments", "lib", "1.2")
        assert known["held_by"] == []
        assert known["silent_ms"] >= 0
        assert {rows[ports[silent]][name] for name in ("client_id", "software_name", "software_version")} == {None}


async def test_parked_request_is_listed_until_its_answer(broker: Broker) -> None:
    async with client_of(broker) as client:
        await create_topic(client, "t")
        client.send(fetch_request("t", 0, max_wait_ms=60_000), 12, client_id="reader")
        await until(broker, lambda: len(broker.replicas.delayed_fetch) == 1)
        (row,) = (await page(broker, "requests"))["requests"]
        (connection,) = (await page(broker, "connections"))["connections"]

        assert (row["api"], row["version"], row["client_id"], row["is_answered"]) == ("Fetch", 12, "reader", False)
        assert row["port"] == client.writer.get_extra_info("sockname")[1]
        assert (row["bytes"] > 0, row["waited_ms"] >= 0) == (True, True)
        assert connection["held_by"] == ["parked"]
    await until(broker, lambda: not broker.server.connections)
    assert (await page(broker, "requests"))["requests"] == []


async def test_members_say_how_long_they_were_silent(tmp_path: Path) -> None:
    async with asking.running(tmp_path, {"ottla.admin.listener": "127.0.0.1:0"}) as running:
        await found(running, "shop")
        member_id = (await stable(await running.client(), group="shop")).member_id
        joined_id = (await joined(await running.client(), group="wide")).member_id
        rows = {row["group"]: row for row in (await page(running.broker, "members"))["members"]}

    shop, wide = rows["shop"], rows["wide"]
    assert (shop["member_id"], shop["state"], shop["generation"], shop["waits_for"]) == (member_id, "Stable", 1, None)
    assert 0 <= shop["silent_ms"] < shop["session_timeout_ms"] == 10_000
    assert (wide["member_id"], wide["state"]) == (joined_id, "CompletingRebalance")


async def test_progress_names_phase_logs_and_loading(broker: Broker) -> None:
    async with client_of(broker) as client:
        await create_topic(client, "t")
    (row,) = (await page(broker, "progress"))["brokers"]

    assert row == {
        "broker": broker.node_id,
        "phase": "serving",
        "logs_opened": broker.life.recovery.logs_opened,
        "logs_total": broker.life.recovery.logs_total,
        "bytes_checked": 0,
        "loading": [],
    }


def test_member_that_waits_is_not_called_silent() -> None:
    """Its connection is muted while its request is parked: it sends no heartbeats."""
    runtime: Any = SimpleNamespace(node_id=1, broker_clock=SimpleNamespace(now_ms=lambda: 9_000))
    member = SimpleNamespace(
        member_id="m",
        group_instance_id=None,
        client_id="c",
        client_host="h",
        parked_join=5,
        parked_sync=None,
        session_deadline_ms=4_000,
        session_timeout_ms=3_000,
    )
    group = SimpleNamespace(group_id="g", state=GroupState.PREPARING_REBALANCE, generation=2, members={"m": member})
    groups: Any = SimpleNamespace(loaded_shards=lambda: [SimpleNamespace(groups={"g": group})])
    unused: Any = None
    view = NodeView(runtime, unused, unused, groups, unused)
    ((waiting,),) = [[row for row in view.members() if row is not None]]
    member.parked_join = None
    ((silent,),) = [[row for row in view.members() if row is not None]]

    assert (waiting["waits_for"], waiting["silent_ms"]) == ("join", None)
    assert (silent["waits_for"], silent["silent_ms"]) == (None, 8_000)


def test_partition_being_loaded_says_how_far_its_log_was_read() -> None:
    runtime: Any = SimpleNamespace(node_id=1, clock=SimpleNamespace(now_ms=lambda: 700))
    hosted = SimpleNamespace(topic="__consumer_offsets", index=3, began_ms=200, loaded_offset=40)
    replica = SimpleNamespace(log=SimpleNamespace(log_end_offset=90))
    groups: Any = SimpleNamespace(loading=lambda: [hosted])
    none: Any = SimpleNamespace(loading=list)
    replicas: Any = SimpleNamespace(find=lambda topic, index: replica)
    server: Any = None
    (row,) = NodeView(runtime, server, replicas, groups, none).loading()

    expected = {"topic": "__consumer_offsets", "partition": 3, "since_ms": 500, "offset": 40, "end_offset": 90}
    assert row == expected


async def test_rows_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """In slices, of which some have no row at all."""
    monkeypatch.setattr(node_view, "ROWS_MAX", 4)
    monkeypatch.setattr(node_view, "ROWS_PER_STEP", 2)

    def rows() -> Iterator[dict[str, object] | None]:
        yield from (None, None, None)
        yield from ({"n": number} for number in range(6))

    assert json.loads(b"".join(await listed("rows", [rows()]))) == {
        "rows": [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}],
        "left_out": 2,
    }
    assert json.loads(b"".join(await listed("rows", []))) == {"rows": [], "left_out": 0}


async def test_broker_that_is_not_here_is_not_found(broker: Broker) -> None:
    for name in ("connections", "members", "progress", "requests"):
        assert (await get(TcpNetwork(), broker.admin_url, f"/api/v1/node/{name}?broker=99")).status == 404
    for number in ("99", "9" * 5000, "-1", ""):
        page = f"/health/restart-safe?broker={number}"
        answer = await get(TcpNetwork(), broker.admin_url, page)
        assert (answer.status, answer.json["status"]) in ((404, "unknown"), (503, "unknown")), page


async def test_pages_about_clients_stay_on_the_machine(tmp_path: Path) -> None:
    async def asked(url: str) -> list[Answer]:
        return [await get(TcpNetwork(), url, path) for path in ("/health/live", "/metrics", "/api/v1/node/members")]

    async with running_broker(tmp_path, ottla_admin_listener="0.0.0.0:0") as broker:
        answers = await asked(broker.admin_url.replace("0.0.0.0", "127.0.0.1"))

    assert [each.status for each in answers] == [200, 200, 403]
    assert b"ottla.admin.listener" in answers[-1].body


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:9644", "localhost.evil.example", ""])
async def test_page_in_a_browser_sees_nothing_of_clients(broker: Broker, host: str) -> None:
    """Its site can have its name stand for a loopback address (DNS rebinding); it asks for that name then."""
    client = await connect(TcpNetwork(), broker.admin_url)
    paths = ("/health/live", "/api/v1/node/connections", "/api/v1/node/members")
    answers = [await client.get(path, host=host) for path in paths]
    known = [(await client.get(paths[1], host=each)).status for each in ("localhost:1", "127.0.0.1:9", "[::1]:9644")]
    client.transport.close()

    assert [each.status for each in answers] == [200, 403, 403]
    assert b"Host" in answers[-1].body
    assert known == [200, 200, 200]

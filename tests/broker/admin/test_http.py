"""The HTTP of the admin listener: what is refused, what waits, and how many may come (docs/operators.md §2.3)."""

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.broker.admin.http import HEADERS_BYTES_MAX, HttpRequest, HttpResponse, sentence
from ottla.broker.admin.listener import CONNECTIONS_MAX, PROBE_CONNECTIONS_MAX, AdminListener
from ottla.broker.config.server import ServerConfig
from ottla.broker.runtime import LoopRuntime, StartError
from ottla.broker.server.network import TcpNetwork
from tests.broker.admin.pages import RawClient, connect
from tests.broker.wire import RecordingLog
from tests.simulation.loop import SimulationLoop, VirtualClock
from tests.simulation.network import SimulatedNetwork
from tests.simulation.trace import Trace

BIG = 3 << 20


class Rest:
    """Of a body; `promised` bytes, or as many as the pieces have."""

    def __init__(self, pieces: list[bytes], promised: int | None = None) -> None:
        self.size = sum(map(len, pieces)) if promised is None else promised
        self.pieces = pieces
        self.closed = 0

    def read(self) -> bytes:
        if not self.pieces:
            raise OSError("it cannot be read")
        return self.pieces.pop(0)

    def close(self) -> None:
        self.closed += 1


class World:
    """A listener in virtual time."""

    def __init__(self) -> None:
        self.loop = SimulationLoop(executor_delay_us=lambda: 100)
        self.network = SimulatedNetwork(self.loop, Random(1), Trace(lambda: self.loop.now_us))
        clock = VirtualClock(self.loop)
        self.log = RecordingLog()
        self.runtime = LoopRuntime(
            self.loop, ServerConfig(), node_id=1, clock=clock, rng=Random(2), log=self.log, executor=None
        )
        self.gate: asyncio.Event = asyncio.Event()
        self.rest = Rest([b"x" * BIG, b"y", b"z" * BIG])
        self.listener = AdminListener(
            self.runtime,
            {
                "/health/live": lambda _: sentence(200, "alive"),
                "/metrics": lambda request: sentence(200, f"metrics {request.query.get('a', '')}"),
                "/big": lambda _: HttpResponse(200, [b"x" * BIG]),
                "/rest": lambda _: HttpResponse(200, [b"begin "], rest=self.rest),
                "/slow": self._slow,
                "/broken": lambda _: 1 // 0,  # type: ignore[dict-item,return-value]
            },
        )

    async def _slow(self, request: HttpRequest) -> HttpResponse:
        await self.gate.wait()
        return sentence(200, "slow")

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        async def whole() -> None:
            await self.listener.open(self.network, ("broker", 9644))
            await story
            self.listener.close()
            assert len(self.runtime.wheel) == 0

        self.loop.run_until_complete(whole())
        assert not self.loop.failures, self.loop.failures

    async def client(self) -> RawClient:
        return await connect(self.network, self.listener.url)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.loop.close()


def test_pages_are_answered_one_after_the_other(world: World) -> None:
    async def story() -> None:
        client = await world.client()
        first = await client.get("/health/live")
        second = await client.get("/metrics?a=1")

        assert (first.status, first.body) == (200, b"alive\n")
        assert first.headers["cache-control"] == "no-store"
        assert first.headers["date"] == "Tue, 14 Nov 2023 22:13:21 GMT"
        assert second.body == b"metrics 1\n"

    world.run(story())


def test_pipelined_requests_are_answered_in_order(world: World) -> None:
    async def story() -> None:
        client = await world.client()
        world.gate.set()
        targets = ["/slow", "/metrics?a=1", "/slow", "/metrics?a=2"] * 100
        client.transport.write("".join(f"GET {each} HTTP/1.1\r\nHost: t\r\n\r\n" for each in targets).encode())
        answers = [(await client.answer()).body for _ in targets]

        assert answers == [b"slow\n", b"metrics 1\n", b"slow\n", b"metrics 2\n"] * 100

    world.run(story())


def test_rest_of_a_body_is_sent_piece_by_piece(world: World) -> None:
    async def story() -> None:
        client = await world.client()
        client.transport.write(b"GET /rest HTTP/1.1\r\nHost: t\r\n\r\nGET /health/live HTTP/1.1\r\nHost: t\r\n\r\n")

        assert (await client.answer()).body == b"begin " + b"x" * BIG + b"y" + b"z" * BIG
        assert (await client.answer()).body == b"alive\n"
        assert world.rest.closed == 1

    world.run(story())


@pytest.mark.parametrize("rest", [Rest([b"x"], 5), Rest([], 5), Rest([b"x", b""], 5)])
def test_rest_that_is_not_there_breaks_the_connection(world: World, rest: Rest) -> None:
    async def story() -> None:
        world.rest = rest
        client = await world.client()
        client.transport.write(b"GET /rest HTTP/1.1\r\nHost: t\r\n\r\n")
        await client.closed

        # What has come is not all that was promised.
        assert len(client.received.partition(b"\r\n\r\n")[2]) < len(b"begin ") + rest.size
        assert rest.closed == 1

    world.run(story())


def test_rest_is_not_read_for_a_client_that_went(world: World) -> None:
    async def story() -> None:
        client = await world.client()
        client.transport.pause_reading()
        client.transport.write(b"GET /rest HTTP/1.1\r\nHost: t\r\n\r\n")
        await asyncio.sleep(1)
        client.transport.abort()
        await client.closed
        await asyncio.sleep(1)

        assert (world.rest.closed, len(world.rest.pieces) > 0) == (1, True)

    world.run(story())


def test_rest_of_a_body_is_left_out_for_head(world: World) -> None:
    async def story() -> None:
        client = await world.client()
        client.transport.write(b"HEAD /rest HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
        await client.closed

        assert f"\r\nContent-Length: {2 * BIG + 7}\r\n".encode() in client.received
        assert client.received.endswith(b"\r\n\r\n")
        assert (world.rest.closed, len(world.rest.pieces)) == (1, 3)

    world.run(story())


def test_head_has_the_headers_and_no_body(world: World) -> None:
    async def story() -> None:
        client = await world.client()
        client.transport.write(b"HEAD /health/live HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
        await client.closed

        assert client.received.startswith(b"HTTP/1.1 200")
        assert b"\r\nContent-Length: 6\r\n" in client.received
        assert client.received.endswith(b"\r\n\r\n")

    world.run(story())


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n", 405),
        (b"GET /metrics HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET /metrics HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (b"GET /metrics HTTP/1.1\r\nHost: t\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", 431),
        (b"GET /metrics HTTP/1.1\r\nHost: t\r\nX: " + b"x" * (HEADERS_BYTES_MAX + 1) + b"\r\n\r\n", 431),
        (b"\x00\x00\x00\x10\x00\x12\x00\x03\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
    ],
)
def test_what_is_not_served_is_refused_and_closed(world: World, request_bytes: bytes, status: int) -> None:
    async def story() -> None:
        client = await world.client()
        client.transport.write(request_bytes)
        answer = await client.answer()
        await client.closed

        assert answer.status == status
        assert not client.received

    world.run(story())


def test_unknown_page_names_those_there_are(world: World) -> None:
    async def story() -> None:
        answer = await (await world.client()).get("/helth")
        assert answer.status == 404
        assert b"/health/live" in answer.body

    world.run(story())


def test_page_that_fails_is_logged_and_answered_500(world: World) -> None:
    async def story() -> None:
        client = await world.client()
        assert (await client.get("/broken")).status == 500
        assert (await client.get("/health/live")).status == 200
        assert [event for event, _ in world.log.events] == ["a page of the admin listener failed"]

    world.run(story())


def test_request_that_does_not_end_is_refused_after_5_s(world: World) -> None:
    async def story() -> None:
        client = await world.client()
        assert (await client.get("/health/live")).status == 200
        await asyncio.sleep(20)
        began_us = world.loop.now_us
        client.transport.write(b"GET /health")
        for _ in range(3):
            await asyncio.sleep(1)
            client.transport.write(b"/")
        answer = await client.answer()
        await client.closed

        assert answer.status == 408
        assert 5_000_000 <= world.loop.now_us - began_us < 5_200_000

    world.run(story())


def test_connection_that_sends_nothing_is_closed(world: World) -> None:
    async def story() -> None:
        silent, idle = await world.client(), await world.client()
        await idle.get("/health/live")
        await asyncio.sleep(6)
        assert silent.closed.done()
        assert not idle.closed.done()
        await asyncio.sleep(75)
        assert idle.closed.done()

    world.run(story())


def test_client_that_does_not_read_is_cut_off_after_30_s(world: World) -> None:
    async def story() -> None:
        client = await world.client()
        client.transport.pause_reading()
        client.transport.write(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n")
        await asyncio.sleep(29)
        assert len(world.listener._connections) == 1
        await asyncio.sleep(2)
        assert len(world.listener._connections) == 0

    world.run(story())


def test_large_response_arrives_whole(world: World) -> None:
    async def story() -> None:
        client = await world.client()
        assert (await client.get("/big")).body == b"x" * BIG
        assert (await client.get("/health/live")).status == 200

    world.run(story())


def test_task_of_a_page_ends_with_its_connection(world: World) -> None:
    async def story() -> None:
        client = await world.client()
        client.transport.write(b"GET /slow HTTP/1.1\r\nHost: t\r\n\r\n")
        await asyncio.sleep(1)
        client.transport.abort()
        await asyncio.sleep(1)
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "admin /slow"]

    world.run(story())


def test_probes_have_connections_of_their_own(world: World) -> None:
    async def story() -> None:
        clients = [await world.client() for _ in range(CONNECTIONS_MAX)]
        probe, scraper = await world.client(), await world.client()
        assert (await clients[-1].get("/metrics")).status == 200
        assert (await probe.get("/health/live")).status == 200
        assert (await scraper.get("/metrics")).status == 503
        await scraper.closed
        more = [await world.client() for _ in range(PROBE_CONNECTIONS_MAX)]
        await asyncio.sleep(0.1)

        assert [client.closed.done() for client in (*clients, *more)] == [True] + [False] * (len(clients) + 7)

    world.run(story())


def test_who_holds_all_connections_keeps_no_probe_out(world: World) -> None:
    """An orchestrator would end a broker whose probe is not answered."""

    async def story() -> None:
        for _ in range(2 * (CONNECTIONS_MAX + PROBE_CONNECTIONS_MAX)):
            hostile = await world.client()
            assert (await hostile.get("/health/live")).status == 200
        for _ in range(2 * (CONNECTIONS_MAX + PROBE_CONNECTIONS_MAX)):
            await world.client()
        probe = await world.client()
        assert (await probe.get("/health/live")).status == 200
        assert len(world.listener._connections) == CONNECTIONS_MAX + PROBE_CONNECTIONS_MAX

    world.run(story())


async def test_listener_serves_on_real_sockets_too(tmp_path: Path) -> None:
    async with _listener() as listener:
        client = await connect(TcpNetwork(), listener.url)
        assert (await client.get("/health/live")).body == b"alive\n"
        client.transport.close()


async def test_address_in_use_is_a_sentence() -> None:
    async with _listener() as listener:
        port = int(listener.url.rpartition(":")[2])
        with pytest.raises(StartError, match=rf"^cannot listen on 127.0.0.1:{port} \(ottla.admin.listener\): "):
            await AdminListener(listener.runtime, {}).open(TcpNetwork(), ("127.0.0.1", port))


class _listener:  # noqa: N801 - used as a function
    async def __aenter__(self) -> AdminListener:
        loop = asyncio.get_running_loop()
        from ottla.broker.loop_wheel import SystemClock

        self._runtime = LoopRuntime(
            loop, ServerConfig(), node_id=1, clock=SystemClock(), rng=Random(), log=RecordingLog(), executor=None
        )
        self._listener = AdminListener(self._runtime, {"/health/live": lambda _: sentence(200, "alive")})
        await self._listener.open(TcpNetwork(), ("127.0.0.1", 0))
        return self._listener

    async def __aexit__(self, *error: object) -> None:
        self._listener.close()
        self._runtime.stop()

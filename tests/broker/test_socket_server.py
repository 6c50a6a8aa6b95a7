"""When connections are closed, in virtual time."""

import resource
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.config.server import ServerConfig
from ottla.broker.histogram import Histogram
from ottla.broker.server.close_reasons import CloseReason
from ottla.broker.server.connection import Connection
from ottla.broker.server.request_context import RequestContext
from ottla.broker.server.socket_server import CLOSE_TIMEOUT_MS, Server
from ottla.replication.fetch_session_cache import FetchSessionCache
from ottla.timer.wheel import TimingWheel
from tests.broker.test_connection import FakeTransport, feed
from tests.broker.wire import RecordingLog

IDLE_MS = 10_000


class World:
    """A server with one connection, whose client has `unread` bytes of answers before it."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.wheel = TimingWheel()
        self.log = RecordingLog()
        runtime: Any = SimpleNamespace(
            clock=SimpleNamespace(now_ms=lambda: self.now_ms, now_ns=lambda: self.now_ms * 1_000_000),
            config=ServerConfig({"connections.max.idle.ms": str(IDLE_MS)}),
            is_serving=True,
            log=self.log,
            soon=lambda action: action(),
            end_event=lambda: None,
            wheel=self.wheel,
        )
        sessions = FetchSessionCache(10, lambda: 1)
        self.server = Server(runtime, sessions, inter_broker_listener="PLAINTEXT", part=lambda name: None)
        self.connection = Connection(self.server, "PLAINTEXT")
        self.transport = Transport(self.connection)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def pass_ms(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.wheel.advance(self.now_ms)


class Transport(FakeTransport):
    """As those of event loops: closed when everything is sent, or aborted."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(high_water=100)
        self.protocol: Connection = connection
        self.ended = ""

    def close(self) -> None:
        if not self._unread:
            self._end("closed")

    def abort(self) -> None:
        self._end("aborted")

    def read_some(self, size_bytes: int) -> None:
        self._unread -= size_bytes

    def _end(self, how: str) -> None:
        self.ended = how
        self.protocol.connection_lost(None)


@pytest.fixture
def world() -> World:
    return World()


def test_an_idle_connection_without_answers_is_closed_at_once(world: World) -> None:
    world.pass_ms(IDLE_MS - 1)
    assert world.transport.ended == ""

    world.pass_ms(1)

    assert world.transport.ended == "closed"
    assert len(world.wheel) == 0, "no timer is left"


def test_an_idle_client_that_reads_no_answers_is_aborted(world: World) -> None:
    world.transport.writelines([bytes(1000)])

    world.pass_ms(IDLE_MS)
    assert world.transport.ended == ""
    world.pass_ms(CLOSE_TIMEOUT_MS)

    assert world.transport.ended == "aborted"
    assert world.log.reasons() == [f"idle for {IDLE_MS} ms"]
    assert not world.server.connections
    assert world.server.memory.held_bytes == 0


def test_a_client_that_reads_slowly_is_not_idle(world: World) -> None:
    world.transport.writelines([bytes(1000)])
    for _ in range(5):
        world.transport.read_some(100)
        world.pass_ms(IDLE_MS)
    assert world.log.reasons() == []

    world.pass_ms(IDLE_MS)

    assert world.log.reasons() == [f"idle for {IDLE_MS} ms"]


def test_a_client_that_has_just_read_everything_is_not_idle(world: World) -> None:
    world.transport.writelines([bytes(1000)])
    world.pass_ms(IDLE_MS - 1)
    world.transport.drain()

    world.pass_ms(IDLE_MS - 1)

    assert world.log.reasons() == []


def test_a_client_that_was_just_answered_is_not_idle(world: World) -> None:
    """As in Kafka, where each write moves the deadline."""
    request = RequestContext(world.connection)
    api = SimpleNamespace(key=1, name="Fetch")
    request.route = SimpleNamespace(api=api, parked=Histogram(), response_bytes=0)  # type: ignore[assignment]
    request.park()
    world.pass_ms(IDLE_MS - 1)
    request.complete(None, b"answer")

    world.pass_ms(IDLE_MS - 1)
    assert (world.transport.ended, world.log.reasons()) == ("", [])
    world.pass_ms(1)

    assert world.log.reasons() == [f"idle for {IDLE_MS} ms"]


@pytest.mark.parametrize("unread_bytes", [50, 5000])
def test_a_closed_connection_that_is_not_read_is_aborted(world: World, unread_bytes: int) -> None:
    world.transport.writelines([bytes(unread_bytes)])
    feed(world.connection, struct.pack(">ihhih", 10, 999, 0, 1, -1))
    if unread_bytes > 100:
        world.connection.close(CloseReason.IDLE, "a reason")
    assert (world.transport.ended, len(world.server.connections)) == ("", 1)

    world.pass_ms(CLOSE_TIMEOUT_MS)

    assert (world.transport.ended, len(world.server.connections)) == ("aborted", 0)


def test_a_client_that_half_closes_and_reads_nothing_is_aborted(world: World) -> None:
    world.transport.writelines([bytes(1000)])
    assert not world.connection.eof_received()
    world.transport.close()

    world.pass_ms(CLOSE_TIMEOUT_MS)

    assert world.transport.ended == "aborted"


def test_last_answers_that_are_read_in_time_are_not_cut_off(world: World) -> None:
    world.transport.writelines([bytes(50)])
    world.connection.close(CloseReason.IDLE, "a reason")
    world.transport.drain()
    world.transport.close()

    world.pass_ms(CLOSE_TIMEOUT_MS)

    assert world.transport.ended == "closed"


@pytest.mark.parametrize(("number", "is_taken"), [(87, True), (88, False)])
def test_clients_cannot_take_the_last_descriptors(
    world: World, monkeypatch: pytest.MonkeyPatch, number: int, is_taken: bool
) -> None:
    """Logs that roll, new topics and checkpoints need them."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 1000))
    connection = Connection(world.server, "PLAINTEXT")
    transport = Transport(connection)
    socket = SimpleNamespace(fileno=lambda: number, family=None)
    monkeypatch.setattr(transport, "get_extra_info", lambda name: socket if name == "socket" else ("127.0.0.1", 1))

    connection.connection_made(transport)  # type: ignore[arg-type]

    assert transport.ended == ("" if is_taken else "closed")
    assert (connection in world.server.connections) is is_taken

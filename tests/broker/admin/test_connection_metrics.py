"""Bytes of requests and responses, why connections are closed, what holds them, and what software they have."""

import socket
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.admin.metrics.exposition import labels
from ottla.broker.admin.metrics.request_source import RequestSource
from ottla.broker.broker import Broker
from ottla.broker.server.close_reasons import CloseReason, why_no_frame
from ottla.broker.server.connection import Connection
from ottla.broker.server.connection_interfaces import HELD_BY_PARKED, HELD_BY_TURN, HELD_BY_WRITING
from ottla.broker.server.socket_server import OTHER_SOFTWARE, SOFTWARE_LENGTH_MAX, SOFTWARE_PAIRS_MAX, ClientSoftware
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.metadata import MetadataRequest
from tests.broker.test_connection import FakeTransport
from tests.broker.wire import (
    Client,
    batch,
    client_of,
    create_topic,
    fetch_request,
    produce_request,
    running_broker,
    turn,
    until,
)
from tests.fakes.frames import build_request_frame

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def source(broker: Broker) -> RequestSource:
    found = RequestSource(broker.runtime, broker.server, broker.replicas, None, cluster_id="c")
    assert all(step is None for step in found.prepare())
    return found


def samples(broker: Broker, name: str) -> dict[str, Any]:
    return dict(each for each in source(broker).families[name]() if each is not None)


async def test_bytes_are_counted_with_the_api_that_they_belong_to(tmp_path: Path) -> None:
    """Runs in one event, requests that are parked, those answered behind them, deferred ones, and coroutines."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        before = {name: samples(broker, f"ottla_{name}_bytes_total") for name in ("request", "response")}
        story: list[tuple[str, Any, int]] = [
            ("Heartbeat", HEARTBEAT, 4),
            ("Heartbeat", HEARTBEAT, 4),
            ("Heartbeat", HEARTBEAT, 3),
            ("Produce", produce_request("t", batch(b"one" * 100)), 9),
            ("Produce", produce_request("t", batch(b"two")), 8),
            ("ApiVersions", ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3),
            ("Fetch", fetch_request("t", 0), 12),
            ("Fetch", FetchRequest(max_wait_ms=1, min_bytes=1), 4),
            ("Heartbeat", HEARTBEAT, 4),
            ("Metadata", MetadataRequest(topics=None), 9),
        ]
        frames = [build_request_frame(request, version, n, "c") for n, (_, request, version) in enumerate(story)]
        client.writer.write(b"".join(frames))
        sent, received = Counter[str](), Counter[str]()
        for (api, _, _), frame in zip(story, frames, strict=True):
            sent[labels(api=api)] += len(frame)
            number, rest = await client.receive_frame()
            received[labels(api=story[number][0])] += 8 + len(rest)
        await turn(broker)

        for name, counted in (("request", sent), ("response", received)):
            after = samples(broker, f"ottla_{name}_bytes_total")
            grown = {api: after[api] - before[name].get(api, 0) for api in after}
            assert {api: grew for api, grew in grown.items() if grew} == counted


def reset(client: Client) -> None:
    """Ends the connection without saying so in the orderly way."""
    held = client.writer.get_extra_info("socket")
    held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.writer.transport.abort()


NO_ACKS = produce_request("nowhere", b"x", acks=0)
ENDINGS: dict[CloseReason, bytes | None] = {
    CloseReason.CLIENT: None,
    CloseReason.LOST: None,
    CloseReason.MALFORMED: b"\xff\xff\xff\xff" + bytes(20),
    CloseReason.TOO_LARGE: b"\x7f\xff\xff\xff" + bytes(20),
    CloseReason.NOT_KAFKA: b"\x16\x03\x01\x02" + bytes(20),
    CloseReason.NOT_SERVED: struct.pack(">ihhih", 20, 999, 0, 1, -1) + bytes(20),
    CloseReason.REQUEST_FAILED: build_request_frame(NO_ACKS, 8, 1, "c"),
}


async def test_each_closed_connection_is_counted_once_with_its_reason(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for number, (reason, sent) in enumerate(ENDINGS.items(), 1):
            client = await Client.connect(broker)
            await until(broker, lambda: len(broker.server.connections) == 1)
            if sent is not None:
                client.writer.write(sent)
                assert await client.is_closed_by_broker()
                client.close()
            elif reason is CloseReason.CLIENT:
                client.close()
            else:
                reset(client)
            await until(broker, lambda: not broker.server.connections)
            assert samples(broker, "ottla_connections_opened_total") == {'listener="PLAINTEXT"': number}
        last = await Client.connect(broker)
        await until(broker, lambda: len(broker.server.connections) == 1)
        server = broker.server
    last.close()

    expected = {("PLAINTEXT", reason): 1 for reason in (*ENDINGS, CloseReason.BROKER_STOPS)}
    assert server.closed == expected
    assert server.opened.total() == server.closed.total()


async def test_handler_that_fails_closes_for_an_unhandled_error(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        client.send(HEARTBEAT, 4)
        await client.receive_frame()
        for route in broker.server.dispatcher.routes.values():
            route.handle = lambda context, request: 1 // 0
        client.send(HEARTBEAT, 4)
        assert await client.is_closed_by_broker()

        reasons = samples(broker, "ottla_connections_closed_total")
        assert reasons == {labels(listener="PLAINTEXT", reason="unhandled error"): 1}


async def test_connection_beyond_the_limit_is_counted_as_such(tmp_path: Path) -> None:
    async with running_broker(tmp_path, max_connections=1) as broker, client_of(broker):
        await until(broker, lambda: len(broker.server.connections) == 1)
        refused = await Client.connect(broker)
        assert await refused.is_closed_by_broker()
        refused.close()

        assert broker.server.closed == {("PLAINTEXT", CloseReason.OVER_LIMIT): 1}


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (b"GET ", CloseReason.NOT_KAFKA),
        (b"\x16\x03\x01\x00", CloseReason.NOT_KAFKA),
        (b"\x00\x00\x00\x01", CloseReason.MALFORMED),
        (b"\x00\x00\x04\x01", CloseReason.TOO_LARGE),
    ],
)
def test_bytes_that_are_no_frame_say_what_they_are(start: bytes, reason: CloseReason) -> None:
    assert why_no_frame(start, 1024)[0] is reason


async def test_held_connections_are_counted_by_what_holds_them(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        held = [Connection(broker.server, "PLAINTEXT") for _ in range(4)]
        for connection in held:
            connection.connection_made(FakeTransport())  # type: ignore[arg-type]
        held[0].holds |= HELD_BY_PARKED
        held[1].holds |= HELD_BY_PARKED | HELD_BY_WRITING
        held[2].holds |= HELD_BY_TURN

        assert samples(broker, "ottla_connections_held") == {
            'reason="parked"': 2,
            'reason="writing"': 1,
            'reason="throttle"': 0,
            'reason="start"': 0,
            'reason="turn"': 1,
            'reason="login"': 0,
        }
        assert samples(broker, "ottla_connections") == {'listener="PLAINTEXT"': 4}
        for connection in held:
            connection.connection_lost(None)


async def test_clients_say_their_software_and_it_is_exported(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        for version in ("1.0", "2.0", "1.0"):
            client.send(ApiVersionsRequest(client_software_name="lib", client_software_version=version), 3)
            await client.receive_frame()
        # Of the lowest version, which says nothing of the kind, and one that no broker knows.
        client.send(ApiVersionsRequest(), 0)
        await client.receive_frame()

        assert samples(broker, "ottla_client_software_info") == {
            labels(name="lib", version="1.0"): 1,
            labels(name="lib", version="2.0"): 1,
        }


def test_many_kinds_of_client_software_are_one_series_more() -> None:
    software = ClientSoftware()
    for number in range(SOFTWARE_PAIRS_MAX + 30):
        software.note("lib", str(number))
    software.note("x" * (SOFTWARE_LENGTH_MAX + 1), "1")
    software.note("lib", "3")

    assert len(software.seen) == SOFTWARE_PAIRS_MAX + 1
    assert OTHER_SOFTWARE in software.seen

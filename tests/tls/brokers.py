"""A broker with a listener with TLS beside a plain one, and sockets that speak to it."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.protocol.client import parse_response
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker.wire import RecordingLog
from tests.fakes.frames import build_request_frame
from tests.tls.certificates import Authority, Certificate

WAIT_S = 20
ASK = build_request_frame(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3, 7, "c")
BASE = {
    "listeners": "PLAINTEXT://127.0.0.1:0,TLS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}


def of_listener(name: str, **values: str | Path) -> dict[str, str]:
    """Properties `listener.name.<name>.ssl.…`, written with underscores."""
    return {f"listener.name.{name}.ssl.{key.replace('_', '.')}": str(value) for key, value in values.items()}


@asynccontextmanager
async def tls_broker(
    directory: Path, authority: Authority, server: Certificate | None = None, **settings: str
) -> AsyncIterator[Broker]:
    """With a certificate for this machine, and trust in the authority; `settings`: any property, `__` for a dot."""
    server = server or authority.issue("broker")
    files = of_listener(
        "tls",
        keystore_location=server.write(directory / "broker.pem"),
        truststore_location=authority.write(directory / "ca.pem"),
    )
    static = BASE | files | {key.replace("__", "."): value for key, value in settings.items()}
    broker = Broker(ServerConfig(static), data_dir=directory / "data", log=RecordingLog())
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def address(broker: Broker, name: str = "TLS") -> tuple[str, int]:
    found = next(each for each in broker.listeners.endpoints if each.name == name)
    return found.host, found.port


def trusting(authority: Authority, shown: Certificate | None = None, directory: Path | None = None) -> ssl.SSLContext:
    """A client's; what it shows is written to the directory."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.pem)
    if shown is not None:
        assert directory is not None, "OpenSSL reads keys from files"
        context.load_cert_chain(shown.write(directory / f"{id(shown)}.pem"))
    return context


def ask_over(connection: socket.socket) -> ApiVersionsResponse:
    """Asks for ApiVersions; raises OSError where the connection is closed."""
    connection.sendall(ASK)
    received = b""
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionError("closed")
        received += piece
    return parse_response(ApiVersionsResponse, 3, received[4:])


def ask(at: tuple[str, int], context: ssl.SSLContext, server_name: str = "localhost") -> str | None:
    """The version of TLS with which a request is served. Raises OSError."""
    with (
        socket.create_connection(at, WAIT_S) as plain,
        context.wrap_socket(plain, server_hostname=server_name) as connection,
    ):
        assert ask_over(connection).error_code == 0
        return connection.version()


async def asked(broker: Broker, context: ssl.SSLContext, server_name: str = "localhost") -> str | None:
    return await asyncio.to_thread(ask, address(broker), context, server_name)


def reasons(broker: Broker) -> list[str]:
    log = broker.runtime.log
    assert isinstance(log, RecordingLog)
    return log.reasons()

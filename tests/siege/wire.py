"""A connection that waits, for clients without a library: requests as objects, or bytes as they come."""

import socket
import struct
from typing import Any

from ottla.protocol.client import WireClient
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.schema import Message

Address = tuple[str, int]
USER, PASSWORD = "probe", "siege"
"""Of the listeners with a login."""


def address_of(bootstrap: str) -> Address:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


def reset(connection: socket.socket) -> None:
    """Ends it with RST: the broker learns of it at once, and no port waits for stray packets."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def has_ended(connection: socket.socket) -> bool:
    """Whether the broker has ended it. Takes the answers, which nothing comes of."""
    connection.setblocking(False)
    try:
        return not connection.recv(1 << 16)
    except BlockingIOError:
        return False
    except OSError:
        return True


class Wire:
    """Errors are OSErrors; a broker that closes the connection is one."""

    def __init__(
        self,
        address: Address,
        client_id: str | None = "siege",
        *,
        timeout_s: float = 10,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        """A small receive buffer makes a client that does not read felt sooner."""
        self.socket = socket.socket()
        try:
            if receive_buffer_bytes is not None:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.settimeout(timeout_s)
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        self.client = WireClient(client_id)

    def call(self, request: Message, version: int) -> Any:
        self.send(request, version)
        return self.receive()

    def log_in(self) -> None:
        """By PLAIN. Raises OSError."""
        handshake = self.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = f"\0{USER}\0{PASSWORD}".encode()
        if handshake.error_code or self.call(SaslAuthenticateRequest(auth_bytes=token), 1).error_code:
            raise ConnectionError("the login has failed")

    def send(self, request: Message, version: int) -> None:
        self.socket.sendall(self.client.send(request, version))

    def receive(self) -> Any:
        size = int.from_bytes(self._receive_exactly(4), "big")
        return self.client.receive(self._receive_exactly(size))

    def reset(self) -> None:
        reset(self.socket)

    def _receive_exactly(self, size: int) -> bytes:
        received = self.socket.recv(size, socket.MSG_WAITALL) if size else b""
        while len(received) < size:
            more = self.socket.recv(size - len(received))
            if not more:
                raise ConnectionResetError(f"the broker closed the connection {size - len(received)} bytes too early")
            received += more
        return received

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

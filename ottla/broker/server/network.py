"""Where connections come from: TCP in production, memory in a simulation."""

import asyncio
import resource
import socket
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol


class ListeningSocket(Protocol):
    """A bound socket that accepts connections."""

    host: str
    port: int

    def close(self) -> None:
        """Accepts nothing more; connections that were accepted live on."""
        ...


class Network(Protocol):
    async def listen(
        self, protocol_factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int, *, backlog: int
    ) -> ListeningSocket:
        """Raises OSError where the address cannot be had."""
        ...

    async def connect(
        self, protocol_factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> asyncio.Transport:
        """Raises OSError where no peer answers."""
        ...


class TcpListener:
    def __init__(self, server: asyncio.Server, host: str) -> None:
        self._server = server
        self.host = host
        self.port: int = server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._server.close()


class TcpNetwork:
    """Sockets of the running loop."""

    async def listen(
        self, protocol_factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int, *, backlog: int
    ) -> TcpListener:
        loop = asyncio.get_running_loop()
        # asyncio takes protocols of either kind; its types know only one.
        factory: Callable[[], asyncio.Protocol] = protocol_factory  # type: ignore[assignment]
        server = await loop.create_server(factory, host, port, backlog=backlog, reuse_address=True)
        return TcpListener(server, host)

    async def connect(
        self, protocol_factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        factory: Callable[[], asyncio.Protocol] = protocol_factory  # type: ignore[assignment]
        transport, _ = await loop.create_connection(factory, host, port)
        return transport


class WritingTransport(Protocol):
    """What answers are written to."""

    def writelines(self, list_of_data: Iterable[Any], /) -> None: ...

    def get_write_buffer_size(self) -> int: ...


class JoinedWrites:
    """A transport that is given one piece at a time."""

    __slots__ = ("_transport",)

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def writelines(self, list_of_data: Iterable[Any], /) -> None:
        self._transport.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()


def writing_transport(
    transport: asyncio.Transport, version: tuple[int, int, int] = sys.version_info[:3]
) -> WritingTransport:
    """The transport itself, if it asks its protocol to pause when too much of what `writelines` was given is unread.
    That of asyncio's own loop does not in Python 3.12.0 to 3.12.8 and 3.13.0 to 3.13.1 (CVE-2024-12254)."""
    is_affected = (3, 12) <= version < (3, 12, 9) or (3, 13) <= version < (3, 13, 2)
    if is_affected and type(transport).__module__ == "asyncio.selector_events":
        return JoinedWrites(transport)
    return transport


async def held_address(host: str, port: int) -> socket.socket | None:
    """An address of TCP, bound until the socket is closed; port 0: a free one. Connections to it are refused, or reach
    the socket that listens there with SO_REUSEADDR. But the kernel gives its port to no connection that goes out, as it
    may do with that of a broker that is down. None where that cannot be had: only Linux lets two bind one address."""
    if sys.platform != "linux":
        return None
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        held = socket.socket(family, kind, protocol)
    except OSError:
        return None
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        held.bind(address)
    except OSError:
        held.close()
        return None
    return held


# Descriptors that clients cannot take: logs that roll, new topics, checkpoints and other brokers need them.
DESCRIPTORS_KEPT = 256


def takes_last_descriptors(transport: asyncio.BaseTransport) -> bool:
    """Whether the process has few descriptors left without this connection's: the kernel gives the smallest number."""
    tcp = transport.get_extra_info("socket")
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if tcp is None or allowed == resource.RLIM_INFINITY:
        return False
    number: int = tcp.fileno()
    return number >= allowed - min(DESCRIPTORS_KEPT, allowed // 8)


class SocketOptions(NamedTuple):
    """None leaves a buffer to the operating system."""

    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None

    def apply(self, transport: asyncio.Transport) -> None:
        tcp = transport.get_extra_info("socket")
        if tcp is None or tcp.family not in (socket.AF_INET, socket.AF_INET6):
            return
        # Set by hand: asyncio leaves it out for sockets accepted from a listener it did not make itself.
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.send_buffer_bytes is not None:
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        if self.receive_buffer_bytes is not None:
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)


class ReceiveThreshold:
    """How many bytes must be there before the loop is woken to receive them (SO_RCVLOWAT).

    A receiver of a megabyte would otherwise be woken for every piece of it, and the sender would wake it as often. Only
    on Linux: from version 4.18 on it makes the receive buffer as large as that takes, so that the bytes can come."""

    def __init__(self, transport: asyncio.Transport) -> None:
        tcp = transport.get_extra_info("socket")
        is_tcp = tcp is not None and tcp.family in (socket.AF_INET, socket.AF_INET6)
        # Of bytes that TLS has taken already the kernel knows nothing: it would wait for more than will come.
        is_tcp = is_tcp and transport.get_extra_info("ssl_object") is None
        self._socket = tcp if is_tcp and sys.platform == "linux" else None
        self._bytes = 1

    def set(self, count: int) -> None:
        if self._socket is not None and count != self._bytes:
            self._bytes = count
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)


def address_for_clients(host: str) -> str:
    """Where clients reach a broker that listens on `host`: there, or for "all addresses", by the machine's name."""
    if host not in ("", "0.0.0.0", "::"):
        return host
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "127.0.0.1"
    return name

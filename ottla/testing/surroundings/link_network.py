"""The network of the brokers of a process, whose ways can be cut.

As long as no way has anything in force, connections are the plain ones: their transports call the protocols of the
brokers themselves. When something comes into force, a `LinkProtocol` steps in between, also for connections that are
open already.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

from ottla.broker.assembly import Parts
from ottla.broker.server.network import ListeningSocket, TcpNetwork
from ottla.broker.server.socket_server import Server
from ottla.testing.surroundings.link_protocol import LinkProtocol
from ottla.testing.surroundings.ways import CLIENTS, Place, Ways


class LinkMap:
    """Who is where: listeners by their ports, and who has made which connection."""

    def __init__(self, ways: Ways) -> None:
        self.ways = ways
        self.nodes_at: dict[int, int] = {}
        self.makers: dict[tuple[str, int], int] = {}
        """Node ids by the address that a connection comes from."""
        self._networks: dict[int, LinkNetwork] = {}
        ways.when_changed.append(self._ways_changed)

    def network_of(self, node_id: int) -> "LinkNetwork":
        """For a broker that starts."""
        network = self._networks[node_id] = LinkNetwork(self, node_id)
        return network

    def attach(self, parts: Parts) -> None:
        """To a broker that has started."""
        self._networks[parts.runtime.node_id].server = parts.server

    def _ways_changed(self) -> None:
        for network in self._networks.values():
            network.ways_changed()


class LinkNetwork:
    """`ottla.broker.server.network.Network` for one broker."""

    def __init__(self, links: LinkMap, node_id: int) -> None:
        self._links = links
        self._ways = links.ways
        self._node_id = node_id
        self._plain = TcpNetwork()
        self.server: Server | None = None
        # Connections that this broker has made, with the brokers that they lead to.
        self._made: dict[asyncio.Transport, int] = {}
        self._protocols: list[LinkProtocol] = []

    async def listen(
        self, protocol_factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int, *, backlog: int
    ) -> ListeningSocket:
        """Raises OSError where the address cannot be had."""
        listener = await self._plain.listen(lambda: self._accepted(protocol_factory()), host, port, backlog=backlog)
        self._links.nodes_at[listener.port] = self._node_id
        return listener

    async def connect(
        self, protocol_factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> asyncio.Transport:
        """Raises OSError where no peer answers."""
        target = self._links.nodes_at.get(port)
        if target is not None and self._ways.is_used:
            await self._ways.open_for_connecting(self._node_id, target)
        transport = await self._plain.connect(protocol_factory, host, port)
        if target is not None:
            self._forget_closed()
            self._made[transport] = target
            self._links.makers[_address(transport, "sockname")] = self._node_id
            if self._ways.is_used:
                self._step_in(transport, partial(_itself, target))
        return transport

    def ways_changed(self) -> None:
        if self._ways.is_used:
            for transport, source in self._plain_connections():
                self._step_in(transport, source)
        for protocol in list(self._protocols):
            protocol.ways_changed()
        self._protocols = [each for each in self._protocols if not each.is_over]

    def _accepted(self, protocol: asyncio.BufferedProtocol) -> asyncio.BufferedProtocol:
        if not self._ways.is_used:
            return protocol
        stepped_in = LinkProtocol(self._ways, protocol, self._node_id, lambda: self._maker(stepped_in.transport))
        self._protocols.append(stepped_in)
        return stepped_in

    def _plain_connections(self) -> Iterator[tuple[asyncio.Transport, Callable[[], Place]]]:
        self._forget_closed()
        for transport, target in self._made.items():
            if not isinstance(transport.get_protocol(), LinkProtocol):
                yield transport, partial(_itself, target)
        for connection in [] if self.server is None else list(self.server.connections):
            accepted = connection.transport
            if accepted is None or accepted.is_closing() or isinstance(accepted.get_protocol(), LinkProtocol):
                continue
            yield accepted, partial(self._maker, accepted)

    def _step_in(self, transport: asyncio.Transport, source: Callable[[], Place]) -> None:
        inner = cast("asyncio.BufferedProtocol", transport.get_protocol())
        protocol = LinkProtocol(self._ways, inner, self._node_id, source)
        self._protocols.append(protocol)
        protocol.interpose(transport)

    def _maker(self, transport: asyncio.Transport | None) -> Place:
        """Who has made a connection to this broker."""
        return CLIENTS if transport is None else self._links.makers.get(_address(transport, "peername"), CLIENTS)

    def _forget_closed(self) -> None:
        closed = [transport for transport in self._made if transport.is_closing()]
        for transport in closed:
            del self._made[transport]


def _itself(place: Place) -> Place:
    return place


def _address(transport: asyncio.Transport, which: str) -> tuple[str, int]:
    host, port = transport.get_extra_info(which)[:2]
    return host, port

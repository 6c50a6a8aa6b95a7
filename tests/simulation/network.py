"""A network in memory: what the broker listens on and clients connect to in place of TCP.

Bytes arrive late, in pieces that are cut anywhere and may be put together again, in order. A receiver that does not
read fills its window, then the sender's buffer, and the sender has to pause, as with sockets. Connections can be
reset and stalled, and ways between hosts cut (`links`): what is sent on a way that is cut arrives when it has healed,
as TCP sends it again, and who connects waits for that, up to a limit. Every delay comes from the generator handed in.

What a transport is given to write it may keep, uncopied, until there is room in the window: as uvloop does.
"""

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from tests.simulation.draws import randint
from tests.simulation.links import Links
from tests.simulation.loop import PROCESS, Process, SimulationLoop
from tests.simulation.trace import Trace, summary

EPHEMERAL_PORT = 40_000
# Linux gives up after two minutes; nothing here waits so long.
CONNECT_TIMEOUT_S = 20.0
HIGH_WATER = 64 * 1024


class End(Enum):
    """What can come instead of bytes."""

    OF_STREAM = "eof"
    BY_RESET = "reset"


@dataclass(frozen=True)
class Conditions:
    """How one connection behaves."""

    latency_us: tuple[int, int] = (50, 200)
    gap_us: int = 0
    """At most this much lies between two pieces that were sent together."""
    largest_piece: int = 1 << 20
    window: int = 1 << 16

    @classmethod
    def draw(cls, rng: random.Random) -> "Conditions":
        low_us = rng.choice([20, 100, 1_000, 20_000])
        return cls(
            latency_us=(low_us, low_us * rng.choice([1, 2, 10])),
            gap_us=rng.choice([0, 5, 1_000]),
            # Byte by byte finds what it finds soon, and costs a step per piece.
            largest_piece=rng.choice([1 << 20, 1 << 20, 1 << 20, 1 << 20, 1_000, 1_000, 100, 9]),
            window=rng.choice([1 << 20, 1 << 16, 4_096]),
        )


class Listener:
    def __init__(self, network: "SimulatedNetwork", factory: Callable[[], Any], host: str, port: int) -> None:
        self._network = network
        self.factory = factory
        self.host = host
        self.port = port
        self.context = contextvars.copy_context()

    def close(self) -> None:
        self._network.listeners.pop((self.host, self.port), None)


class SimulatedNetwork:
    """`ottla.broker.server.network.Network` and the clients' side of it."""

    def __init__(self, loop: SimulationLoop, rng: random.Random, trace: Trace) -> None:
        self.loop = loop
        self.rng = rng
        self.trace = trace
        self.listeners: dict[tuple[str, int], Listener] = {}
        # The clients' ends, oldest first.
        self.connections: dict[Transport, None] = {}
        # Draws the conditions of a new connection; a calm network is a good one to test anything else on.
        self.draw_conditions: Callable[[random.Random], Conditions] = Conditions.draw
        self.links = Links()
        self.links.when_healed.append(self._release)
        # With bytes on a way that is cut.
        self.cut_off: dict[Transport, None] = {}
        self._next_port = EPHEMERAL_PORT

    async def listen(self, protocol_factory: Callable[[], Any], host: str, port: int, *, backlog: int = 0) -> Listener:
        port = port or self._take_port()
        if (host, port) in self.listeners:
            raise OSError(98, f"{host}:{port} is in use")
        listener = self.listeners[host, port] = Listener(self, protocol_factory, host, port)
        return listener

    async def connect(
        self, protocol_factory: Callable[[], Any], host: str, port: int, *, from_host: str = "client"
    ) -> "Transport":
        """Raises ConnectionRefusedError where no server listens, TimeoutError where the way stays cut."""
        conditions = self.draw_conditions(self.rng)
        await asyncio.sleep(self.rng.randint(*conditions.latency_us) / 1_000_000)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await self.links.open_between(from_host, host)
        listener = self.listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(111, f"no server listens on {host}:{port}")
        name = (from_host, self._take_port())
        label = f"{from_host}:{name[1]}"
        near = Transport(self, conditions, label, name, (host, port), contextvars.copy_context())
        far = Transport(self, conditions, f"from {label}", (host, port), name, listener.context)
        near.peer, far.peer = far, near
        self.connections[near] = None
        self.trace.note("connect", label)
        self.loop.call_soon(far.begin, listener.factory, context=listener.context)
        near.begin(protocol_factory)
        return near

    def kill(self, process: Process) -> None:
        """The kernel closes what a dead process had open."""
        for key, listener in list(self.listeners.items()):
            if listener.context.get(PROCESS) is process:
                del self.listeners[key]
        for near in list(self.connections):
            for transport in (near, near.peer):
                if transport.context.get(PROCESS) is process:
                    transport.vanish()

    def _release(self) -> None:
        for transport in list(self.cut_off):
            transport.maybe_release()

    def _take_port(self) -> int:
        self._next_port += 1
        return self._next_port


class Transport(asyncio.Transport):
    """One end of a connection."""

    peer: "Transport"

    def __init__(
        self,
        network: SimulatedNetwork,
        conditions: Conditions,
        label: str,
        sockname: tuple[str, int],
        peername: tuple[str, int],
        context: contextvars.Context,
    ) -> None:
        super().__init__({"sockname": sockname, "peername": peername})
        self.label = label
        self.host = sockname[0]
        self.context = context
        self._network = network
        self._loop = network.loop
        self._conditions = conditions
        self._protocol: Any = None
        self._outgoing: deque[memoryview] = deque()
        self._high_water = HIGH_WATER
        self._low_water = HIGH_WATER // 4
        self._protocol_paused = False
        # On their way here, with their moment of arrival, and arrived but unread.
        self._pieces: deque[tuple[int, bytes | End]] = deque()
        self._received: deque[bytes | End] = deque()
        # On a way that is cut.
        self._held_up: list[bytes | End] = []
        self._unread_bytes = 0
        self._last_arrival_us = 0
        self._reading_paused = False
        self._closing = False
        self._closed = False

    def begin(self, factory: Callable[[], Any]) -> None:
        self._protocol = factory()
        self._protocol.connection_made(self)
        self._read_soon()

    # asyncio.Transport: reading.

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        self._read_soon()

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    # asyncio.Transport: writing.

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Sequence[Any]) -> None:  # type: ignore[override]
        if self._closing:
            return
        outgoing = self._outgoing
        for data in list_of_data:
            view = memoryview(data).cast("B")
            if len(view):
                outgoing.append(view)
        self._flush()
        if outgoing and not self._protocol_paused and self.get_write_buffer_size() > self._high_water:
            self._protocol_paused = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self._outgoing))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_water = high if high is not None else 4 * low if low is not None else HIGH_WATER
        self._low_water = low if low is not None else self._high_water // 4

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_water, self._high_water

    # asyncio.Transport: ending.

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._flush()

    def abort(self) -> None:
        if not self._closed:
            self._outgoing.clear()
            self.peer.arrive(End.BY_RESET)
            self._lose(None)

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    # Faults.

    def reset(self) -> None:
        """Both ends lose the connection, and what was on its way is gone."""
        for transport in (self, self.peer):
            transport._pieces.clear()
            transport._received.clear()
            transport.arrive(End.BY_RESET)

    def narrow(self, window: int) -> None:
        """No more than `window` bytes that are not read at this end are on their way here, or have arrived."""
        self.peer._conditions = replace(self.peer._conditions, window=window)

    def stall(self, duration_us: int) -> None:
        """Nothing sent from now on arrives here before `duration_us` have passed."""
        self._last_arrival_us = max(self._last_arrival_us, self._loop.now_us + duration_us)

    def vanish(self) -> None:
        """The process at this end has died; nothing here is notified."""
        if not self._closed:
            self._closed = self._closing = True
            self._network.connections.pop(self, None)
            self._network.connections.pop(self.peer, None)
            # What it had sent may still arrive, or may not.
            if self._network.rng.random() < 0.5:
                self.peer._pieces.clear()
            self.peer.arrive(End.BY_RESET)

    # The way of the bytes.

    def _flush(self) -> None:
        """Sends what the window has room for."""
        # What is sent to an end that has closed comes back as a reset.
        room = self._conditions.window if self.peer._closed else self._conditions.window - self.peer._unread_bytes
        outgoing = self._outgoing
        while outgoing and room > 0:
            view = outgoing.popleft()
            if len(view) > room:
                outgoing.appendleft(view[room:])
                view = view[:room]
            room -= len(view)
            self._send(bytes(view))
        if self._protocol_paused and self.get_write_buffer_size() <= self._low_water:
            self._protocol_paused = False
            self._protocol.resume_writing()
        if self._closing and not self._outgoing and not self._closed:
            self.peer.arrive(End.OF_STREAM)
            self._lose(None)

    def _send(self, data: bytes) -> None:
        largest = self._conditions.largest_piece
        if largest >= len(data):
            self.peer.arrive(data)
            return
        position = 0
        while position < len(data):
            size = randint(self._network.rng, 1, largest)
            self.peer.arrive(data[position : position + size])
            position += size

    def arrive(self, piece: bytes | End) -> None:
        """It will: after the latency, and not before what was sent earlier, and not on a way that is cut."""
        links = self._network.links
        if links.cuts and links.is_cut(self.peer.host, self.host):
            self._hold_up(piece)
            return
        if self._closed:
            if piece is not End.BY_RESET and not self.peer._closed:
                self.peer.arrive(End.BY_RESET)
            return
        rng, conditions = self._network.rng, self._conditions
        in_order_us = self._last_arrival_us + randint(rng, 0, conditions.gap_us)
        when_us = self._loop.now_us + randint(rng, *conditions.latency_us)
        if when_us < in_order_us:
            when_us = in_order_us
        if not self._pieces or self._pieces[-1][0] != when_us:
            self._loop.call_at_us(when_us, self._take_in, context=self.context)
        self._last_arrival_us = when_us
        if isinstance(piece, bytes):
            self._unread_bytes += len(piece)
        self._pieces.append((when_us, piece))

    def _hold_up(self, piece: bytes | End) -> None:
        if isinstance(piece, bytes):
            self._unread_bytes += len(piece)
        self._held_up.append(piece)
        self._network.cut_off[self] = None

    def maybe_release(self) -> None:
        """If the way here is open again, what was held up sets out."""
        if self._network.links.is_cut(self.peer.host, self.host):
            return
        del self._network.cut_off[self]
        pieces, self._held_up = self._held_up, []
        for piece in pieces:
            if isinstance(piece, bytes):
                self._unread_bytes -= len(piece)
            self.arrive(piece)

    def _take_in(self) -> None:
        while self._pieces and self._pieces[0][0] <= self._loop.now_us:
            piece = self._pieces.popleft()[1]
            if piece is End.BY_RESET:
                self._lose(ConnectionResetError(104, "connection reset by peer"))
            else:
                self._received.append(piece)
        self._read()

    def _read_soon(self) -> None:
        self._loop.call_soon(self._read, context=self.context)

    def _read(self) -> None:
        """One read event: as much as the protocol takes at once."""
        if self._closing or self._reading_paused or self._protocol is None or not self._received:
            return
        if self._received[0] is End.OF_STREAM:
            self._received.popleft()
            if not self._protocol.eof_received():
                self.close()
            return
        data = self._join_received()
        protocol = self._protocol
        takes_buffers = isinstance(protocol, asyncio.BufferedProtocol)
        if takes_buffers:
            buffer = protocol.get_buffer(-1)
            count = len(data)
            if count > len(buffer):
                count = len(buffer)
                self._received.appendleft(data[count:])
                data = data[:count]
            buffer[:count] = data
        else:
            count = len(data)
        self._unread_bytes -= count
        self._network.trace.note("read", self.label, summary(data))
        if self.peer._outgoing:
            self._loop.call_soon(self.peer._flush, context=self.peer.context)
        if takes_buffers:
            protocol.buffer_updated(count)
        else:
            protocol.data_received(data)
        if self._received:
            self._read_soon()

    def _join_received(self) -> bytes:
        received = self._received
        first: Any = received.popleft()
        if not received or not isinstance(received[0], bytes):
            return first  # type: ignore[no-any-return]
        parts: list[bytes] = [first]
        while received and isinstance(received[0], bytes):
            parts.append(received.popleft())  # type: ignore[arg-type]
        return b"".join(parts)

    def _lose(self, error: Exception | None) -> None:
        if self._closed:
            return
        self._network.trace.note("lost", self.label, error)
        self._closed = self._closing = True
        self._network.connections.pop(self, None)
        self._outgoing.clear()
        self._loop.call_soon(self._protocol.connection_lost, error, context=self.context)

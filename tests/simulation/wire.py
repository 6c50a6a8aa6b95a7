"""A client's connection: requests of `ottla.protocol` out, answers in, each exactly once and in order (I-18)."""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, TypeVar

from ottla.protocol.client import UnexpectedResponseError, WireClient
from tests.fakes.frames import FrameBuffer
from tests.simulation.judge import Judge
from tests.simulation.network import SimulatedNetwork, Transport

FRAME_BYTES_MAX = 1 << 30
LOST = (ConnectionError, OSError)


@dataclass
class Waiting:
    request: Any
    version: int
    answer: "asyncio.Future[Any]"
    broker_served: bool
    """When the request was sent, or its time was over last."""
    overdue: asyncio.TimerHandle | None = None


class Wire(asyncio.Protocol):
    """`call` raises ConnectionError when the connection is lost before the answer."""

    transport: Transport

    def __init__(self, client_id: str, judge: Judge) -> None:
        self._wire = WireClient(client_id)
        self._judge = judge
        self._frames = FrameBuffer(FRAME_BYTES_MAX)
        self._waiting: deque[Waiting] = deque()
        self._lost = False
        self._incarnation = judge.incarnation

    @property
    def incarnation(self) -> int:
        """The life of the broker that this connection leads to."""
        return self._incarnation

    @property
    def is_lost(self) -> bool:
        return self._lost

    async def call(self, request: Any, version: int, *, within_ms: int) -> Any:
        """An answer that takes longer than `within_ms`, on a connection that lives, is a violation of I-18."""
        if self._lost:
            raise ConnectionResetError("the connection was lost before")
        loop = asyncio.get_running_loop()
        waiting = Waiting(request, version, loop.create_future(), self._judge.serves(self))
        self._waiting.append(waiting)
        self.transport.write(self._wire.send(request, version))
        allowed_ms = within_ms + self._judge.network_allowance_ms
        self._expect(waiting, allowed_ms)
        try:
            return await waiting.answer
        finally:
            if waiting.overdue is not None:
                waiting.overdue.cancel()

    def send(self, request: Any, version: int) -> None:
        """A request that has no answer; after it the connection is of no use for others."""
        if not self._lost:
            self.transport.write(self._wire.send(request, version))

    def close(self) -> None:
        """As a client that goes away, whatever it is still waiting for."""
        self.transport.abort()
        self.connection_lost(None)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for payload in self._frames.feed(data):
            self._answered(payload)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        for waiting in self._waiting:
            if not waiting.answer.done():
                waiting.answer.set_exception(ConnectionResetError("the connection was lost"))
        self._waiting.clear()

    def _answered(self, frame: bytes) -> None:
        if not self._waiting:
            self._judge.violated("I-18", f"an answer that no request waits for: {frame[:40]!r}")
            return
        waiting = self._waiting.popleft()
        try:
            response = self._wire.receive(frame)
        except UnexpectedResponseError as error:
            self._judge.violated("I-18", str(error))
            return
        if not waiting.answer.done():
            waiting.answer.set_result(response)

    def _expect(self, waiting: Waiting, allowed_ms: int) -> None:
        loop = asyncio.get_running_loop()
        waiting.overdue = loop.call_later(allowed_ms / 1000, self._overdue, waiting, allowed_ms)

    def _overdue(self, waiting: Waiting, allowed_ms: int) -> None:
        if self._lost:
            return
        if not waiting.broker_served:
            waiting.broker_served = self._judge.serves(self)
            self._expect(waiting, allowed_ms)
        else:
            self._judge.violated("I-18", f"no answer after {allowed_ms} ms to v{waiting.version} {waiting.request!r}")


AnyWire = TypeVar("AnyWire", bound=Wire)


async def connect(
    network: SimulatedNetwork, judge: Judge, address: tuple[str, int], client_id: str, kind: type[AnyWire]
) -> AnyWire:
    """Raises ConnectionRefusedError while no broker listens."""
    transport = await network.connect(lambda: kind(client_id, judge), *address, from_host=client_id)
    wire: AnyWire = transport.get_protocol()
    return wire

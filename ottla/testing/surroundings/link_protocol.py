"""A protocol between a transport and the protocol of a broker, which lets bytes wait or drops them.

It stands on the side that receives: what is sent on a way from broker 1 to broker 2 arrives at connections of broker 2,
whichever of the two has made them. A sender notices nothing but that no answer comes, as with a firewall.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from ottla.testing.surroundings.ways import Place, Ways

BUFFER_BYTES: Final = 64 * 1024
LOOK_AGAIN_S: Final = 0.002
"""While the broker does not want to read."""
END_OF_STREAM: Final = b""


class LinkProtocol(asyncio.BufferedProtocol):
    """Put in place by `interpose`, or given to a transport in place of the broker's protocol. It steps back by itself
    when no way has anything in force and all that had to wait has arrived."""

    def __init__(self, ways: Ways, inner: asyncio.BufferedProtocol, target: Place, source: Callable[[], Place]) -> None:
        """`source` is asked for when the first bytes arrive: who has connected may not be known before."""
        self._ways = ways
        self.inner: Any = inner
        self._target = target
        self._source_of = source
        self.transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        # With the moment of the loop's clock at which each arrives.
        self._pieces: deque[tuple[float, bytes]] = deque()
        self._last_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.has_lost = False
        # A transport that has come to the end of its stream reads no more, whether the broker wants to or not.
        self._has_ended = False

    def interpose(self, transport: asyncio.Transport) -> None:
        """Between a transport and its protocol."""
        self.transport = transport
        transport.set_protocol(self)

    @property
    def is_over(self) -> bool:
        """The connection is closed, or the broker's protocol has its place again."""
        transport = self.transport
        return transport is not None and (transport.is_closing() or transport.get_protocol() is not self)

    def ways_changed(self) -> None:
        if self.is_over or self.transport is None:
            return
        way = self._ways.between(self._source_of(), self._target)
        if (way.is_cut and way.resets) or (self.has_lost and not way.is_cut):
            # A stream with a hole cannot go on.
            self.transport.abort()
            return
        if not way.delay_ms and way.bytes_per_s is None:
            self._pieces = deque((0.0, piece) for _, piece in self._pieces)
        self._deliver()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pieces.clear()
        if self._timer is not None:
            self._timer.cancel()
        self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - what comes at once is copied at once
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._take(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool:
        self._has_ended = True
        self._take(END_OF_STREAM)
        return True

    # What arrives, and when.

    def _take(self, piece: bytes) -> None:
        way = self._ways.between(self._source_of(), self._target)
        if way.is_cut:
            self.has_lost = True
            return
        now = self._loop.time()
        at = now + way.delay_ms / 1000
        if way.bytes_per_s is not None:
            at = max(at, self._last_at) + len(piece) / way.bytes_per_s
        self._last_at = at = max(at, self._last_at)
        self._pieces.append((at, piece))
        self._deliver()

    def _deliver(self) -> None:
        """All that is due, in order."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        transport = self.transport
        assert transport is not None, "bytes come by a transport"
        while self._pieces and not transport.is_closing():
            if self._ways.is_held(self._source_of(), self._target):
                return
            at, piece = self._pieces[0]
            wait_s = at - self._loop.time()
            if wait_s <= 0 and not (transport.is_reading() or self._has_ended):
                wait_s = LOOK_AGAIN_S
            if wait_s > 0:
                self._timer = self._loop.call_later(wait_s, self._deliver)
                return
            self._pieces.popleft()
            self._pass_on(piece, transport)
        if not self._pieces and not self._ways.is_used and not self.has_lost and not transport.is_closing():
            transport.set_protocol(self.inner)

    def _pass_on(self, piece: bytes, transport: asyncio.Transport) -> None:
        if piece == END_OF_STREAM:
            if not self.inner.eof_received():
                transport.close()
            return
        left = memoryview(piece)
        while left and not transport.is_closing():
            room = memoryview(self.inner.get_buffer(len(left)))
            size = min(len(room), len(left))
            room[:size] = left[:size]
            left = left[size:]
            # No view may be left of what may be made longer.
            del room
            self.inner.buffer_updated(size)

"""TLS between a socket and the protocol that speaks over it: a protocol to the socket's transport, a transport to that
protocol, and OpenSSL between two buffers in memory.

Nothing of it belongs to an event loop, so it works on uvloop and in a simulation alike. Received bytes come into a
buffer that all connections of a broker share, and are decrypted into the place where the inner protocol wants them, its
`get_buffer`; what OpenSSL gets at once, and keeps room for, is bounded. The inner protocol has its connection from
the accept on, so limits count it from there; it gets bytes once the handshake is done.
"""

import asyncio
import contextlib
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

from ottla.security.tls_failure import tls_failure

# Of one read of the socket.
CIPHERTEXT_BYTES = 256 * 1024
# The most that a TLS record has.
RECORD_BYTES = 16 * 1024
# What OpenSSL gets at once. It keeps room for that as long as the connection lives.
DECRYPTED_AT_ONCE = 2 * RECORD_BYTES
ENCRYPTED_AT_ONCE = 4 * RECORD_BYTES


# Of a connection that is lost: no bytes come by it or go.
_NO_BYTES = ssl.MemoryBIO()


class InnerProtocol(Protocol):
    """What speaks over TLS: `asyncio.BufferedProtocol`, with a view as its buffer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def eof_received(self) -> bool | None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


def ciphertext_buffer() -> memoryview:
    """What received bytes come into, one for all connections of a loop: they are taken before the next read."""
    return memoryview(bytearray(CIPHERTEXT_BYTES))


_NOTHING_WITHIN = cast("InnerProtocol", asyncio.BufferedProtocol())


class TlsConnection(asyncio.Transport, asyncio.BufferedProtocol, ABC):
    """One side of a connection. Its two kinds say how a handshake ends: `_established` and `_failed`."""

    __slots__ = (
        "_ciphertext",
        "_context",
        "_incoming",
        "_inner",
        "_is_closing",
        "_is_established",
        "_is_reading_paused",
        "_outgoing",
        "_server_name",
        "_soon",
        "_tls",
        "_transport",
    )

    def __init__(
        self,
        inner: InnerProtocol,
        context: ssl.SSLContext,
        ciphertext: memoryview,
        soon: Callable[[Callable[[], None]], object],
        *,
        server_name: str | None = None,
    ) -> None:
        """`ciphertext`: of `ciphertext_buffer`. `soon` runs an action in the next step of the loop. `server_name`: for
        the side that connects, whom it wants to reach."""
        super().__init__()
        self._inner = inner
        self._context = context
        self._ciphertext = ciphertext
        self._soon = soon
        self._server_name = server_name
        self._transport: asyncio.Transport | None = None
        # Made with the first bytes: one that never speaks costs nothing.
        self._tls: ssl.SSLObject | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._is_established = False
        self._is_closing = False
        self._is_reading_paused = False

    # What the two kinds do.

    @abstractmethod
    def _established(self) -> None:
        """The handshake is done; bytes come next."""

    @abstractmethod
    def _failed(self, why: str) -> None:
        """The other side has its alert. Nothing is read any more: the connection is to be closed."""

    # What the socket's transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._inner.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Lets go of all it has: it and what is within refer to each other, and the collector of such garbage comes
        late. OpenSSL's memory would wait for it, tens of KiB of each handshake."""
        self._is_closing = True
        inner, self._inner = self._inner, _NOTHING_WITHIN
        inner.connection_lost(exc)
        self._tls = self._transport = None
        self._incoming = self._outgoing = _NO_BYTES

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - it is of one size
        return self._ciphertext

    def buffer_updated(self, nbytes: int) -> None:
        self._receive(self._ciphertext, nbytes)

    def _receive(self, ciphertext: memoryview, size: int) -> None:
        position = 0
        while position < size and not self._is_closing:
            end = min(position + DECRYPTED_AT_ONCE, size)
            self._incoming.write(ciphertext[position:end])
            position = end
            self._advance()
        self._flush()

    def eof_received(self) -> bool:
        self._inner.eof_received()
        return False

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    # The way in.

    def _advance(self) -> None:
        """Takes a step with what has been received."""
        if not self._is_established and not self._shake_hands():
            return
        self._deliver()

    def _object(self) -> ssl.SSLObject:
        tls = self._tls
        if tls is None:
            server_side = self._server_name is None
            tls = self._tls = self._context.wrap_bio(
                self._incoming, self._outgoing, server_side=server_side, server_hostname=self._server_name
            )
        return tls

    def _shake_hands(self) -> bool:
        """Whether that is done."""
        try:
            self._object().do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            self._fail(tls_failure(error))
            return False
        self._is_established = True
        self._flush()
        self._established()
        return not self._is_closing

    def _deliver(self) -> None:
        """Decrypts until nothing is left, or the inner protocol wants no more: no event would come for what is left."""
        tls, incoming, inner = self._object(), self._incoming, self._inner
        read = tls.read
        while not self._is_reading_paused and not self._is_closing and (incoming.pending or tls.pending()):
            room = inner.get_buffer(-1)
            filled, size, why, has_ended = 0, len(room), None, False
            try:
                while filled < size and (incoming.pending or tls.pending()):
                    # typeshed knows no view as the buffer.
                    count = int(read(size - filled, cast("Any", room[filled:])))
                    if not count:
                        has_ended = True
                        break
                    filled += count
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                why = tls_failure(error)
            del room
            if filled:
                inner.buffer_updated(filled)
            if why is not None:
                self._fail(why)
            elif has_ended and not self._is_closing:
                inner.eof_received()
                self.close()
            elif filled < size:
                return

    def _deliver_rest(self) -> None:
        if self._is_established and not self._is_closing:
            self._deliver()
            self._flush()

    def _fail(self, why: str) -> None:
        """OpenSSL has an alert for the other side."""
        if not self._is_closing:
            self._flush()
            self._failed(why)

    # The way out.

    def _flush(self) -> None:
        if self._outgoing.pending and self._transport is not None:
            self._transport.write(self._outgoing.read())

    def write(self, data: Any) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Records are filled: short pieces are put together, and the beginning of a long one with those before it."""
        if self._is_closing or self._transport is None:
            return
        assert self._is_established, "the inner protocol speaks when it has heard something"
        try:
            self._seal(list_of_data)
        except ssl.SSLError:
            # What came last was no TLS, and OpenSSL takes nothing more: what came before has no answer.
            self._soon(self._give_up)
            return
        self._flush()

    def _give_up(self) -> None:
        if not self._is_closing:
            self.abort()

    def _seal(self, list_of_data: Iterable[Any]) -> None:
        short = bytearray()
        for data in list_of_data:
            view, position = memoryview(data), 0
            if short:
                position = min(RECORD_BYTES - len(short), len(view))
                short += view[:position]
                if len(short) == RECORD_BYTES:
                    self._encrypt(memoryview(short))
                    short = bytearray()
            while len(view) - position >= RECORD_BYTES:
                whole = (len(view) - position) // RECORD_BYTES * RECORD_BYTES
                end = position + min(whole, ENCRYPTED_AT_ONCE)
                self._encrypt(view[position:end])
                position = end
            short += view[position:]
        if short:
            self._encrypt(memoryview(short))

    def _encrypt(self, data: memoryview) -> None:
        """What is sealed already goes first, where OpenSSL has no room for both: the other side can begin with it, and
        the next piece gets its memory. A long answer in one piece would come into new pages each time."""
        if self._outgoing.pending + len(data) > ENCRYPTED_AT_ONCE:
            self._flush()
        tls, position = self._object(), 0
        while position < len(data):
            position += tls.write(data[position:])

    # The transport of the inner protocol.

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        transport = self._transport
        if transport is None:
            return
        if self._is_established:
            self._say_goodbye()
        self._flush()
        transport.close()

    def _say_goodbye(self) -> None:
        # It does not wait for the other side's, and after a failure there is none.
        with contextlib.suppress(ssl.SSLError):
            self._object().unwrap()

    def abort(self) -> None:
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def is_closing(self) -> bool:
        return self._is_closing or self._transport is None or self._transport.is_closing()

    def pause_reading(self) -> None:
        self._is_reading_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        if self._transport is not None and not self._is_closing:
            self._transport.resume_reading()
            if self._incoming.pending or (self._tls is not None and self._tls.pending()):
                self._soon(self._deliver_rest)

    # What stands between it and its socket has its place there.

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self if self._transport is None else self._transport.get_protocol()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        if self._transport is not None:
            self._transport.set_protocol(protocol)

    def is_reading(self) -> bool:
        return self._transport is not None and self._transport.is_reading()

    def get_write_buffer_size(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=high, low=low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        return default if self._transport is None else self._transport.get_extra_info(name, default)

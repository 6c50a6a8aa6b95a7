"""How bytes come to a capture: by connections of a class of its own, whose transport notes what is written.

Without a capture a broker has connections of the plain class, with the transports of the loop. While there is one,
`CaptureHost` makes others, and turns those that are open into such, with what they have received and not handled yet,
so that what is captured of them begins with a whole frame. At the end they are turned back.
"""

import asyncio
import ssl
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ottla.broker.assembly import Parts
from ottla.broker.logging import LazyLog
from ottla.broker.server.close_reasons import CloseReason
from ottla.broker.server.connection import Connection
from ottla.broker.server.connection_interfaces import ConnectionOwner
from ottla.broker.server.network import writing_transport
from ottla.broker.server.tls_connection import TlsConnection
from ottla.testing.wire_capture.capture import RECEIVED, SENT, Capture
from ottla.testing.wire_capture.file_format import CaptureError, RecordKind

if TYPE_CHECKING:
    from ottla.coordinator.facts import Fact
    from ottla.testing.faults.state import Hit


class NotingTransport(asyncio.Transport):
    """The transport of a connection that is captured: what is written to it is noted."""

    def __init__(self, transport: asyncio.Transport, capture: Capture, wall_ms: Callable[[], int]) -> None:
        super().__init__()
        self.transport = transport
        self._written = writing_transport(transport)
        self.capture = capture
        self.number = capture.next_connection()
        self.wall_ms = wall_ms
        # While what has been received is handled: the broker time of it, which is that of what is sent then.
        self.event_ms: int | None = None
        self.cause = CloseReason.LOST.value
        self.why: str | None = None

    def note(self, kind: RecordKind, data: bytes) -> None:
        self.capture.note(kind, self.number, self.wall_ms(), data)

    def write(self, data: Any) -> None:
        if not self.transport.is_closing():
            self.note(RecordKind.SENT, bytes(data))
        self.transport.write(data)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        pieces: list[Any] = [*list_of_data]
        if not self.transport.is_closing():
            now_ms = self.event_ms
            data = bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)
            self.capture.note(SENT, self.number, self.wall_ms() if now_ms is None else now_ms, data)
        self._written.writelines(pieces)

    def close(self) -> None:
        self.transport.close()

    def abort(self) -> None:
        self.transport.abort()

    def is_closing(self) -> bool:
        return self.transport.is_closing()

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.transport.get_protocol()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.transport.set_protocol(protocol)

    def is_reading(self) -> bool:
        return self.transport.is_reading()

    def pause_reading(self) -> None:
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        self.transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self.transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.transport.set_write_buffer_limits(high=high, low=low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.transport.get_extra_info(name, default)


class CapturedConnection(Connection):
    """Of one capture there is one subclass. It has no field of its own: a connection that is open becomes one by its
    class, and what it needs is in its transport."""

    __slots__ = ()

    capture: ClassVar[Capture]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        noting = NotingTransport(cast("asyncio.Transport", transport), self.capture, self._runtime.clock.wall_ms)
        self._note_opened(noting, is_open_already=False)
        super().connection_made(noting)

    def begin_to_capture(self) -> None:
        """As one that has been open before."""
        assert self.transport is not None, "an open connection has its transport"
        plain = self.transport
        noting = NotingTransport(plain, self.capture, self._runtime.clock.wall_ms)
        self._note_opened(noting, is_open_already=True)
        kept = self._kept
        if kept is not None and kept.filled > kept.start:
            noting.note(RecordKind.RECEIVED, bytes(kept.view[kept.start : kept.filled]))
        self._use(noting, plain)

    def end_to_capture(self) -> None:
        """It is a plain connection then."""
        plain = self._noting.transport
        # First, so that what is called from now on is found in that class.
        self.__class__ = Connection  # type: ignore[assignment]
        CapturedConnection._use(self, plain, plain)

    def _use(self, transport: asyncio.Transport, plain: asyncio.Transport) -> None:
        self.transport = transport
        self._responses.open(transport)
        # A link with faults stands between, and looks for the methods each time, as TLS does.
        if not isinstance(plain, TlsConnection) and plain.get_protocol() is self:
            # uvloop keeps the methods of the protocol that it calls.
            plain.set_protocol(self)

    @property
    def _noting(self) -> NotingTransport:
        return cast("NotingTransport", self.transport)

    def _note_opened(self, noting: NotingTransport, *, is_open_already: bool) -> None:
        peer: Any = noting.get_extra_info("peername")
        fields = {
            "node": self._runtime.node_id,
            "listener": self.listener_name,
            "peer": f"{peer[0]}:{peer[1]}" if peer else "",
            "tls": isinstance(noting.transport, TlsConnection),
            "open_before": is_open_already,
        }
        if is_open_already and self.client is not None:
            fields["software"] = f"{self.client.software_name} {self.client.software_version}"
        self.capture.note_json(RecordKind.OPENED, noting.number, noting.wall_ms(), fields)

    def buffer_updated(self, nbytes: int) -> None:
        # The bytes are where `get_buffer` wanted them. No view may be left.
        noting: Any = self.transport
        kept = self._kept
        view = self._buffers.shared[:nbytes] if kept is None else kept.view[kept.filled : kept.filled + nbytes]
        data = bytes(view)
        del view, kept
        noting.event_ms = now_ms = noting.wall_ms()
        noting.capture.note(RECEIVED, noting.number, now_ms, data)
        # Named, for the class has been made for one capture: a call by `super` takes twice as long.
        Connection.buffer_updated(self, nbytes)
        noting.event_ms = None

    def connection_lost(self, exc: Exception | None) -> None:
        noting = self._noting
        fields = {"cause": noting.cause, **({} if noting.why is None else {"why": noting.why})}
        self.capture.note_json(RecordKind.CLOSED, noting.number, noting.wall_ms(), fields)
        super().connection_lost(exc)

    def _end(self, reason: CloseReason, why: str | None) -> None:
        self._noting.cause, self._noting.why = reason.value, why
        super()._end(reason, why)


class CaptureHost:
    """The captures of one broker, or of all brokers of a cluster: one at a time. Everything is for their loop."""

    def __init__(self) -> None:
        self.capture: Capture | None = None
        self._class: type[CapturedConnection] | None = None
        self._parts: dict[int, Parts] = {}

    def new_connection(self, owner: ConnectionOwner, listener_name: str) -> Connection:
        """For a broker that accepts one."""
        return (self._class or Connection)(owner, listener_name)

    def attach(self, parts: Parts) -> None:
        """To a broker that has started: facts about its groups are noted too."""
        self._parts[parts.runtime.node_id] = parts

        def note(fact: "Fact", now_ms: int) -> None:
            self._note_fact(parts, fact, now_ms)

        parts.group_loader.when_made.append(lambda made: made.timed_observers.append(note))

    def begin(
        self,
        path: Path,
        header: "dict[str, Any] | MappingProxyType[str, Any]" = MappingProxyType({}),
        *,
        with_secrets: bool = False,
        log: LazyLog | None = None,
        bytes_max: int = sys.maxsize,
    ) -> Capture:
        """Open connections are captured from here on. `log` is where it is said when it ends early, which it does
        with more than `bytes_max`. Raises CaptureError."""
        if self.capture is not None:
            raise CaptureError(f"the capture {self.capture.path} is not over: there is one at a time")
        capture = Capture(path, {**_versions(), **header}, with_secrets=with_secrets, bytes_max=bytes_max)
        self.capture = capture

        def ended_early() -> None:
            if log is not None:
                log.warning("the capture ended early", reason=capture.ended)
            for parts in self._parts.values():
                # A connection may be in the middle of a read: it is another one afterwards.
                parts.runtime.soon(self._release)
                break

        capture.on_end = ended_early
        self._class = type("CapturedConnection", (CapturedConnection,), {"__slots__": (), "capture": capture})
        for connection in self._connections():
            if not connection.is_closed:
                connection.__class__ = self._class
                cast("CapturedConnection", connection).begin_to_capture()
        return capture

    def end(self) -> Capture | None:
        """The one that is over now: `wait` for its file; None where there was none."""
        capture, self.capture = self.capture, None
        if capture is not None:
            self._release()
            capture.end()
        return capture

    def mark(self, **fields: Any) -> None:
        """In the capture, if there is one."""
        if self.capture is not None:
            self.capture.note_json(RecordKind.MARK, 0, self._wall_ms(), fields)

    def note_hit(self, rule_id: str, hit: "Hit") -> None:
        """A fault rule has acted."""
        parts = self._parts.get(hit.node)
        if self.capture is not None and parts is not None:
            fields = {"rule": rule_id, **asdict(hit)}
            self.capture.note_json(RecordKind.FAULT, 0, parts.runtime.clock.wall_ms(), fields)

    def _release(self) -> None:
        """Connections are plain ones again."""
        captured, self._class = self._class, None
        for connection in self._connections():
            if captured is not None and isinstance(connection, captured):
                connection.end_to_capture()

    def _connections(self) -> list[Connection]:
        return [each for parts in self._parts.values() for each in parts.server.connections]

    def _note_fact(self, parts: Parts, fact: "Fact", now_ms: int) -> None:
        if self.capture is not None:
            said = {name: getattr(fact, name) for name in fact.__dataclass_fields__}
            wall_ms = parts.runtime.clock.wall_ms()
            named = {"fact": type(fact).__name__, "node": parts.runtime.node_id, "now_ms": now_ms}
            self.capture.note_json(RecordKind.FACT, 0, wall_ms, {**named, **said})

    def _wall_ms(self) -> int:
        return next((parts.runtime.clock.wall_ms() for parts in self._parts.values()), 0)


def _versions() -> dict[str, Any]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    try:
        own = version("ottla")
    except PackageNotFoundError:
        own = "unknown"
    return {"ottla": own, "python": platform.python_version(), "openssl": ssl.OPENSSL_VERSION}

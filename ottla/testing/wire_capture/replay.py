"""Sends the requests of a capture again, as its clients, to another broker.

Each connection of a client in the capture is a connection here. A request leaves when all has been answered that was
answered before it in the capture: so members join in the same order, and a fetch finds what was produced before it.
What brokers gave out - ids of members, producers, topics, sessions, generations - is replaced by what this broker
gives, learnt by comparing its answers with those of the capture. Logins are left out, and so are the connections of
brokers to each other.
"""

import asyncio
import contextlib
import struct
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from time import time_ns
from typing import Any, Final

from ottla.broker.server.apis import APIS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from ottla.protocol.codec import encode
from ottla.protocol.records.batch import iterate_batches, seal_batch
from ottla.protocol.schema import Message, fields_of
from ottla.storage.files import reason_of
from ottla.testing.wire_capture.capture import Capture
from ottla.testing.wire_capture.exchanges import (
    Answered,
    CapturedExchange,
    CapturedPeer,
    Closed,
    ExchangeReader,
    FrameParts,
    Requested,
    decode_answer,
)
from ottla.testing.wire_capture.fields import error_name
from ottla.testing.wire_capture.file_format import CaptureError, CaptureFile, RecordKind
from ottla.testing.wire_capture.identities import (
    KINDS,
    PRODUCER,
    PRODUCER_EPOCH,
    Identities,
    leaves,
    scope_of,
)
from ottla.testing.wire_words import error_in

NS_PER_S: Final = 1_000_000_000
SENTENCES_MAX: Final = 20
_PRODUCER_AT: Final = 43
_PRODUCER = struct.Struct(">qh")
_LEFT_OUT: Final = (SASL_HANDSHAKE, SASL_AUTHENTICATE)


class ReplayFailed(Exception):
    """The broker cannot be reached: one sentence."""


@dataclass(slots=True)
class ReplayReport:
    connections: int = 0
    requests: int = 0
    answers: int = 0
    left_out: int = 0
    """Logins, and requests that could not be parsed."""
    differences: list[str] = field(default_factory=list[str])
    """Answers with another error than in the capture, and those that did not come: sentences."""

    @property
    def is_alike(self) -> bool:
        return not self.differences

    def lines(self) -> list[str]:
        done = f"{self.requests} requests on {self.connections} connections, {self.answers} answers"
        left_out = f", {self.left_out} requests left out" if self.left_out else ""
        lines = [f"{done}{left_out}"]
        shown = self.differences[:SENTENCES_MAX]
        more = len(self.differences) - len(shown)
        return [*lines, *shown, *([f"and {more} more"] if more else [])]

    def to_json(self) -> dict[str, Any]:
        names = ("connections", "requests", "answers", "left_out", "differences")
        return {name: getattr(self, name) for name in names}


class Replay:
    """`run` once."""

    def __init__(
        self,
        path: Path,
        host: str,
        port: int,
        *,
        speed: float,
        answer_within_s: float,
        capture: Capture | None = None,
    ) -> None:
        """`speed`: 1 is that of the capture, 0 without pauses. `capture` gets what is sent and answered now; it is the
        caller's."""
        self._path = path
        self._address = host, port
        self._speed = speed
        self._answer_within_s = answer_within_s
        self._capture = capture
        self._ids = Identities()
        self._live: dict[int, _LiveConnection] = {}
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self.report = ReplayReport()

    async def run(self) -> ReplayReport:
        """Raises CaptureError, ReplayFailed."""
        with CaptureFile(self._path) as file:
            reader = ExchangeReader()
            began_s = asyncio.get_running_loop().time()
            try:
                for said in reader.said(file.records()):
                    match said:
                        case Requested(exchange) if not exchange.peer.is_of_broker:
                            await self._pace(exchange, reader, began_s)
                            await self._send(exchange)
                        case Answered(exchange) if exchange.number in self._answers:
                            await self._await_answer(exchange)
                        case Closed(peer):
                            self._close(peer)
                        case _:
                            pass
            finally:
                for live in self._live.values():
                    live.close()
            if file.damage is not None:
                raise CaptureError(file.damage)
        return self.report

    async def _pace(self, exchange: CapturedExchange, reader: ExchangeReader, began_s: float) -> None:
        if not self._speed or exchange.request is None or reader.began_ns is None:
            return
        due_s = began_s + (exchange.request.at_ns - reader.began_ns) / NS_PER_S / self._speed
        wait_s = due_s - asyncio.get_running_loop().time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    async def _send(self, exchange: CapturedExchange) -> None:
        request = exchange.request
        if request is None or request.message is None or exchange.api_key in _LEFT_OUT:
            self.report.left_out += 1
            return
        live = await self._connection(exchange.peer)
        group = str(getattr(request.message, "group_id", "") or "")
        message = self._with_live_identities(request.message, group)
        frame = request.frame[: request.body_from] + encode(message, exchange.version)
        has_answer = not (exchange.api_key == 0 and request.message.acks == 0)
        answer = live.send(frame, has_answer=has_answer)
        self.report.requests += 1
        if answer is not None:
            self._answers[exchange.number] = answer

    async def _connection(self, peer: CapturedPeer) -> "_LiveConnection":
        live = self._live.get(peer.number)
        if live is None:
            try:
                reader, writer = await asyncio.open_connection(*self._address)
            except OSError as error:
                host, port = self._address
                raise ReplayFailed(f"cannot connect to {host}:{port}: {reason_of(error)}") from None
            noted = None if self._capture is None else _Noted(self._capture, ":".join(map(str, self._address)))
            live = self._live[peer.number] = _LiveConnection(reader, writer, noted)
            self.report.connections += 1
        return live

    async def _await_answer(self, exchange: CapturedExchange) -> None:
        waiting = self._answers.pop(exchange.number)
        what = f"{exchange.api} v{exchange.version} of {exchange.peer.name} (#{exchange.number})"
        try:
            frame = await asyncio.wait_for(waiting, self._answer_within_s)
        except TimeoutError:
            self.report.differences.append(f"{what} has no answer within {self._answer_within_s:g} s")
            return
        except ConnectionError as error:
            self.report.differences.append(f"{what} has no answer: {error}")
            return
        self.report.answers += 1
        self._learn(exchange, frame, what)

    def _learn(self, exchange: CapturedExchange, frame: bytes, what: str) -> None:
        recorded = None if exchange.answer is None else exchange.answer.message
        if recorded is None:
            return
        version = exchange.answer_version
        part = FrameParts(frame, 4, 0)
        live: Message | None = decode_answer(APIS[exchange.api_key].response_class(), version, part)
        if live is None:
            self.report.differences.append(f"the answer to {what} cannot be understood: {part.wrong}")
            return
        before, now = error_in(recorded), error_in(live)
        if before != now:
            said = [error_name(each) if each else "no error" for each in (before, now)]
            self.report.differences.append(f"{what} was answered {said[0]} in the capture, and now {said[1]}")
        request = exchange.request
        group = str(getattr(request and request.message, "group_id", "") or "")
        for leaf in leaves(recorded, live, version, self._ids, group):
            if leaf.kind is not None and type(leaf.a) is type(leaf.b):
                self._ids.learn(leaf.kind, leaf.scope, leaf.a, leaf.b)

    def _with_live_identities(self, message: Any, group: str) -> Any:
        cls: Any = message.__class__
        changed: Any = object.__new__(cls)
        for each in fields_of(cls):
            value = getattr(message, each.name)
            kind = KINDS.get(each.name)
            setattr(changed, each.name, self._live_value(value, each.name, kind, scope_of(kind, message, group), group))
        return changed

    def _live_value(self, value: Any, name: str, kind: str | None, scope: Any, group: str) -> Any:
        if isinstance(value, Message):
            return self._with_live_identities(value, group)
        items: Any = value
        if isinstance(value, list) and name != "records":
            return [self._live_value(each, name, kind, scope, group) for each in items]
        if name == "records" and value:
            return self._live_records(value)
        return items if kind is None else self._ids.get(kind, scope, items)

    def _live_records(self, records: Any) -> bytes:
        """Batches have their producer's id and epoch within."""
        data = bytearray(records)
        for position, header in list(iterate_batches(bytes(data))):
            producer_id = self._ids.get(PRODUCER, None, header.producer_id)
            epoch = self._ids.get(PRODUCER_EPOCH, header.producer_id, header.producer_epoch)
            if (producer_id, epoch) != (header.producer_id, header.producer_epoch):
                batch = data[position : position + header.size_bytes]
                _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, epoch)
                seal_batch(batch)
                data[position : position + header.size_bytes] = batch
        return bytes(data)

    def _close(self, peer: CapturedPeer) -> None:
        live = self._live.pop(peer.number, None)
        if live is not None:
            live.close()


class _Noted:
    """One connection in a capture of a replay, which has it as the broker sees it."""

    def __init__(self, capture: Capture, address: str) -> None:
        self._capture = capture
        self._number = capture.next_connection()
        fields = {"listener": address, "peer": "replay", "node": -1}
        capture.note_json(RecordKind.OPENED, self._number, _now_ms(), fields)

    def note(self, kind: RecordKind, frame: bytes) -> None:
        self._capture.note(kind, self._number, _now_ms(), len(frame).to_bytes(4, "big") + frame)

    def close(self) -> None:
        self._capture.note_json(RecordKind.CLOSED, self._number, _now_ms(), {"cause": "client"})


def _now_ms() -> int:
    return time_ns() // 1_000_000


class _LiveConnection:
    """Answers come in the order of the requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, noted: _Noted | None) -> None:
        self._noted = noted
        self._reader = reader
        self._writer = writer
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._lost: ConnectionError | None = None
        self._reading = asyncio.create_task(self._read(), name="replayed connection")

    def send(self, frame: bytes, *, has_answer: bool) -> "asyncio.Future[bytes] | None":
        answer = asyncio.get_running_loop().create_future() if has_answer else None
        if answer is not None:
            if self._lost is not None:
                answer.set_exception(self._lost)
                return answer
            self._waiting.append(answer)
        if self._noted is not None:
            self._noted.note(RecordKind.RECEIVED, frame)
        self._writer.write(len(frame).to_bytes(4, "big") + frame)
        return answer

    async def _read(self) -> None:
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                frame = await self._reader.readexactly(size)
                if self._noted is not None:
                    self._noted.note(RecordKind.SENT, frame)
                if self._waiting:
                    answer = self._waiting.popleft()
                    if not answer.done():
                        answer.set_result(frame)
        except (OSError, asyncio.IncompleteReadError):
            self._lost = ConnectionError("the broker has closed the connection")
            for each in self._waiting:
                if not each.done():
                    each.set_exception(self._lost)
                    # It need not be waited for.
                    each.exception()

    def close(self) -> None:
        if self._noted is not None:
            self._noted.close()
            self._noted = None
        self._reading.cancel()
        with contextlib.suppress(OSError):
            self._writer.close()

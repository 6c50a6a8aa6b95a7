"""From the bytes of a capture to what they say: connections, their requests, and the answers to these.

Answers are found by their correlation ids among the requests that have none, of which a broker answers the oldest
first. Bytes that are no frames, and frames whose body cannot be parsed, are reported as such and stop nothing.
"""

import struct
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.broker.server.apis import API_VERSIONS, APIS, METADATA, PRODUCE, SASL_HANDSHAKE
from ottla.broker.server.peer_connection import BROKER_CLIENT_ID
from ottla.protocol.codec import decode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.primitives import DecodeError, skip_header_tags
from ottla.protocol.schema import Message, is_flexible, response_header_is_tagged
from ottla.testing.wire_capture.blanking import FRAME_BYTES_MAX, OTHER_TOKENS_MAX, TOKENS_MAX
from ottla.testing.wire_capture.file_format import CaptureError, CaptureRecord, RecordKind
from ottla.testing.wire_words import error_in

HELD_BYTES_MAX: Final = 512 << 20
"""Of frames that are not whole yet, of all connections."""
UNANSWERED_MAX: Final = 10_000
"""Requests of one connection without an answer: beyond it the oldest count as such."""
_START = struct.Struct(">hhih")
_INT32 = struct.Struct(">i")
CLIENT_SOFTWARE_FROM: Final = 3


@dataclass(slots=True)
class CapturedPeer:
    """One connection."""

    number: int
    node: int = -1
    listener: str = ""
    peer: str = ""
    is_open_before: bool = False
    """It was open when the capture began."""
    client_id: str | None = None
    software: str = ""
    """Name and version, as its ApiVersions said."""
    name: str = ""
    """A short one: the client id and which one of that id it is."""
    groups: dict[str, None] = field(default_factory=dict[str, None])

    @property
    def is_of_broker(self) -> bool:
        return (self.client_id or "").startswith(BROKER_CLIENT_ID)


@dataclass(slots=True)
class FrameParts:
    """A request or an answer: its bytes behind the size field, and what they mean."""

    frame: bytes
    body_from: int
    at_ns: int
    message: Any = None
    """None where it could not be parsed."""
    wrong: str = ""


@dataclass(slots=True)
class CapturedExchange:
    number: int
    """Of the request, in the capture, from 1 on."""
    peer: CapturedPeer
    api_key: int
    version: int
    correlation_id: int
    request: FrameParts | None
    """None: it came before the capture."""
    answer: FrameParts | None = None
    test: str = ""

    @property
    def api(self) -> str:
        known = APIS.get(self.api_key)
        return known.name if known is not None else f"API {self.api_key}" if self.api_key >= 0 else "?"

    @property
    def error(self) -> int:
        """The first one of the answer; 0 without any."""
        message = None if self.answer is None else self.answer.message
        return 0 if message is None else error_in(message)

    @property
    def answer_version(self) -> int:
        """An ApiVersions of a version that is not served is answered in version 0."""
        unsupported = self.api_key == API_VERSIONS and self.error == ErrorCode.UNSUPPORTED_VERSION
        return 0 if unsupported else self.version


@dataclass(frozen=True, slots=True)
class Opened:
    peer: CapturedPeer
    at_ns: int


@dataclass(frozen=True, slots=True)
class Requested:
    exchange: CapturedExchange


@dataclass(frozen=True, slots=True)
class Answered:
    exchange: CapturedExchange
    """With its answer now."""


@dataclass(frozen=True, slots=True)
class NotAnswered:
    """A later request was answered, or the connection ended, or the capture."""

    exchange: CapturedExchange


@dataclass(frozen=True, slots=True)
class NotKafka:
    """From here on the bytes of one direction are no frames."""

    peer: CapturedPeer
    at_ns: int
    start: bytes
    is_received: bool


@dataclass(frozen=True, slots=True)
class Closed:
    peer: CapturedPeer
    at_ns: int
    cause: str
    why: str


@dataclass(frozen=True, slots=True)
class Happened:
    """A fact, a fault, a mark, or the end."""

    kind: RecordKind
    at_ns: int
    fields: dict[str, Any]


Said = Opened | Requested | Answered | NotAnswered | NotKafka | Closed | Happened


class Stream:
    """One direction of a connection."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_other = False
        self.tokens = 0
        """Frames that come next and have no header: tokens of a login."""

    def frames(self) -> Iterator[bytes | None]:
        """Whole ones, without their sizes; None once, where the bytes are no frame."""
        data, position = self.data, 0
        while not self.is_other and len(data) - position >= 4:
            size = _INT32.unpack_from(data, position)[0]
            if not (0 if self.tokens else 4) <= size <= FRAME_BYTES_MAX:
                self.is_other = True
                del data[:position]
                yield None
                data.clear()
                return
            if len(data) - position - 4 < size:
                break
            frame = bytes(data[position + 4 : position + 4 + size])
            position += 4 + size
            if self.tokens:
                self.tokens -= 1
            else:
                yield frame
        del data[:position]


class _Conversation:
    def __init__(self, peer: CapturedPeer) -> None:
        self.peer = peer
        self.received, self.sent = Stream(), Stream()
        self.unanswered: deque[CapturedExchange] = deque()


class ExchangeReader:
    """`said` for the records of a capture, or for those that follow. Raises CaptureError where they would take too much
    memory."""

    def __init__(self) -> None:
        self._conversations: dict[int, _Conversation] = {}
        self._numbers: Counter[str] = Counter()
        self._count = 0
        self._held = 0
        self._test = ""
        self.began_ns: int | None = None
        self.topics: dict[bytes, str] = {}
        """Names by ids, as answers to Metadata have shown them."""

    def said(self, records: Iterable[CaptureRecord]) -> Iterator[Said]:
        for record in records:
            if self.began_ns is None:
                self.began_ns = record.machine_ns
            match record.kind:
                case RecordKind.RECEIVED | RecordKind.SENT:
                    yield from self._bytes(record)
                case RecordKind.OPENED:
                    yield self._opened(record)
                case RecordKind.CLOSED:
                    yield from self._closed(record)
                case RecordKind.FACT | RecordKind.FAULT | RecordKind.MARK | RecordKind.END:
                    fields = record.fields()
                    if record.kind == RecordKind.MARK:
                        self._test = str(fields.get("test", self._test))
                    yield Happened(RecordKind(record.kind), record.machine_ns, fields)
                case _:
                    pass

    def rest(self) -> Iterator[NotAnswered]:
        """What has no answer when there are no more records."""
        for each in self._conversations.values():
            yield from map(NotAnswered, each.unanswered)
            each.unanswered.clear()

    def _opened(self, record: CaptureRecord) -> Opened:
        fields = record.fields()
        peer = CapturedPeer(
            record.connection,
            node=_number(fields.get("node")),
            listener=str(fields.get("listener", "")),
            peer=str(fields.get("peer", "")),
            is_open_before=bool(fields.get("open_before")),
            software=str(fields.get("software", "")),
            name=f"connection {record.connection}",
        )
        self._conversations[record.connection] = _Conversation(peer)
        return Opened(peer, record.machine_ns)

    def _closed(self, record: CaptureRecord) -> Iterator[Said]:
        found = self._conversations.pop(record.connection, None)
        if found is None:
            return
        self._held -= len(found.received.data) + len(found.sent.data)
        yield from map(NotAnswered, found.unanswered)
        fields = record.fields()
        yield Closed(found.peer, record.machine_ns, str(fields.get("cause", "")), str(fields.get("why", "")))

    def _bytes(self, record: CaptureRecord) -> Iterator[Said]:
        found = self._conversations.get(record.connection)
        if found is None:
            # Its beginning is missing: what it was asked for can still be read, if its first bytes begin a frame.
            found = _Conversation(CapturedPeer(record.connection, name=f"connection {record.connection}"))
            self._conversations[record.connection] = found
        is_received = record.kind == RecordKind.RECEIVED
        stream = found.received if is_received else found.sent
        if stream.is_other:
            return
        held = len(stream.data)
        stream.data += record.payload
        for frame in stream.frames():
            if frame is None:
                yield NotKafka(found.peer, record.machine_ns, bytes(stream.data[:16]), is_received)
            elif is_received:
                yield from self._request(found, frame, record.machine_ns)
            else:
                yield from self._answer(found, frame, record.machine_ns)
        self._held += len(stream.data) - held
        if self._held > HELD_BYTES_MAX:
            raise CaptureError(f"frames that are not whole have more than {HELD_BYTES_MAX >> 20} MiB in this capture")

    def _request(self, found: _Conversation, frame: bytes, at_ns: int) -> Iterator[Said]:
        self._count += 1
        key, version, correlation_id = (-1, -1, -1) if len(frame) < _START.size else _START.unpack_from(frame)[:3]
        request = FrameParts(frame, len(frame), at_ns)
        exchange = CapturedExchange(self._count, found.peer, key, version, correlation_id, request, test=self._test)
        _parse_request(exchange, request)
        self._note_client(found.peer, exchange, request)
        if key == SASL_HANDSHAKE and version == 0:
            mechanism = str(getattr(request.message, "mechanism", "")).encode()
            found.received.tokens = found.sent.tokens = TOKENS_MAX.get(mechanism, OTHER_TOKENS_MAX)
            found.sent.tokens = 0
        yield Requested(exchange)
        if key == PRODUCE and getattr(request.message, "acks", 1) == 0:
            yield NotAnswered(exchange)
            return
        found.unanswered.append(exchange)
        if len(found.unanswered) > UNANSWERED_MAX:
            yield NotAnswered(found.unanswered.popleft())

    def _note_client(self, peer: CapturedPeer, exchange: CapturedExchange, request: FrameParts) -> None:
        if peer.client_id is None and len(request.frame) >= _START.size:
            size = _START.unpack_from(request.frame)[3]
            text = request.frame[_START.size : _START.size + max(0, size)]
            peer.client_id = text.decode(errors="replace")
            short = peer.client_id or "client"
            self._numbers[short] += 1
            peer.name = f"{short}#{self._numbers[short]}"
        message = request.message
        if exchange.api_key == API_VERSIONS and exchange.version >= CLIENT_SOFTWARE_FROM and message is not None:
            peer.software = f"{message.client_software_name} {message.client_software_version}"
        group_id = getattr(message, "group_id", None)
        if group_id:
            peer.groups[str(group_id)] = None

    def _answer(self, found: _Conversation, frame: bytes, at_ns: int) -> Iterator[Said]:
        correlation_id = _INT32.unpack_from(frame)[0]
        answer = FrameParts(frame, 4, at_ns)
        # Nearly always the first.
        place = next((at for at, each in enumerate(found.unanswered) if each.correlation_id == correlation_id), None)
        if place is None:
            self._count += 1
            answer.wrong = "its request is not in the capture"
            yield Answered(CapturedExchange(self._count, found.peer, -1, -1, correlation_id, None, answer, self._test))
            return
        for _ in range(place):
            yield NotAnswered(found.unanswered.popleft())
        exchange = found.unanswered.popleft()
        exchange.answer = answer
        _parse_answer(exchange, answer)
        if exchange.api_key == METADATA and answer.message is not None:
            self.topics.update({each.topic_id: each.name for each in answer.message.topics if each.name})
        if exchange.api_key == SASL_HANDSHAKE and exchange.version == 0 and not exchange.error:
            mechanism = str(getattr(exchange.request and exchange.request.message, "mechanism", "")).encode()
            found.sent.tokens = TOKENS_MAX.get(mechanism, OTHER_TOKENS_MAX)
        yield Answered(exchange)


def _parse_request(exchange: CapturedExchange, request: FrameParts) -> None:
    api = APIS.get(exchange.api_key)
    if api is None or not api.min_version <= exchange.version <= api.max_version:
        request.wrong = "an API or version that is not known here"
        return
    cls = api.request_class()
    try:
        position = _START.size + max(0, _START.unpack_from(request.frame)[3])
        if is_flexible(cls, exchange.version):
            position = skip_header_tags(request.frame, position, len(request.frame))
        request.body_from = position
        request.message = decode(cls, exchange.version, request.frame, position)[0]
    except (DecodeError, struct.error) as error:
        request.wrong = str(error)


def _parse_answer(exchange: CapturedExchange, answer: FrameParts) -> None:
    api = APIS.get(exchange.api_key)
    if api is None or not api.min_version <= exchange.version <= api.max_version:
        answer.wrong = "an API or version that is not known here"
        if exchange.api_key == API_VERSIONS:
            answer.message = decode_answer(APIS[API_VERSIONS].response_class(), 0, answer)
        return
    cls = api.response_class()
    answer.message = decode_answer(cls, exchange.version, answer)
    if answer.message is None and exchange.api_key == API_VERSIONS:
        answer.message = decode_answer(cls, 0, answer)


def decode_answer(cls: type[Message], version: int, answer: FrameParts) -> Any:
    """The message, or None with what is wrong in the answer."""
    frame = answer.frame
    try:
        position = 4
        if response_header_is_tagged(cls, version):
            position = skip_header_tags(frame, position, len(frame))
        message, end = decode(cls, version, frame, position)
    except (DecodeError, struct.error) as error:
        answer.wrong = str(error)
        return None
    if end != len(frame):
        answer.wrong = f"{len(frame) - end} bytes left behind the last field"
        return None
    answer.body_from, answer.wrong = position, ""
    return message


def _number(value: Any) -> int:
    return value if isinstance(value, int) else -1

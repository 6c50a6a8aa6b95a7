"""Secrets of clients are left out of captures: tokens of SASL, salted passwords, configs that are passwords.

Each byte of a secret becomes a `*`, so frames keep their lengths and their layout. What has a secret is found by the
API of a frame, so the bytes of a connection are followed from frame to frame; a frame that has one is kept back until
it is whole. Bytes that are no frames pass as they are: the broker closes such a connection.
"""

import struct
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Final

from ottla.broker.server.apis import APIS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from ottla.protocol.codec import decode, encode
from ottla.protocol.primitives import DecodeError, skip_header_tags
from ottla.protocol.schema import SECRET_FIELDS, Message, fields_of, is_flexible

ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, ALTER_SCRAM = 33, 44, 51
WITH_SECRETS: Final = frozenset({SASL_AUTHENTICATE, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, ALTER_SCRAM})
BLANK: Final = b"*"
# A size beyond it is no frame of Kafka's (`socket.request.max.bytes` is 100 MiB), nor is a negative one.
FRAME_BYTES_MAX: Final = 256 << 20
KEPT_BACK_MAX: Final = 2 << 20
"""A frame with secrets that is longer is left out as a whole."""
# What clients send behind a SaslHandshake of version 0, as frames without headers.
TOKENS_MAX: Final = {b"PLAIN": 1, b"OAUTHBEARER": 1}
OTHER_TOKENS_MAX: Final = 2
_START = struct.Struct(">ihhih")
_API = struct.Struct(">ihh")
_SIZE_AND_API = struct.Struct(">ih")
_SIZE = struct.Struct(">i")
_LOOKED_AT: Final = WITH_SECRETS | {SASL_HANDSHAKE}
BODY_FROM: Final = 12
"""Size, API, version and correlation id stay as they are."""
SECRET_CONFIGS: Final = ("password", "jaas.config", "secret", "keystore.key", "credential")


class FrameFilter(ABC):
    """The bytes of one direction of a connection. Its two kinds say what a frame is replaced by."""

    def __init__(self) -> None:
        self._skip = 0
        self._kept: bytes = b""
        # Of a long frame with secrets: what is still to come.
        self._blank = 0
        self._is_other = False

    def add(self, data: bytes) -> bytes:
        """What may be written now."""
        if self._passes(data):
            return data
        if self._blank:
            hidden = min(self._blank, len(data))
            self._blank -= hidden
            return BLANK * hidden + (self.add(data[hidden:]) if hidden < len(data) else b"")
        return self._added(data)

    @abstractmethod
    def _passes(self, data: bytes) -> bool:
        """Whether it consists of frames without secrets, up to a whole one or into one: as nearly always."""

    def _added(self, data: bytes) -> bytes:
        if self._is_other or (not self._kept and len(data) <= self._skip):
            self._skip -= 0 if self._is_other else len(data)
            return data
        if self._kept:
            data, self._kept = self._kept + data, b""
        out: list[bytes] = []
        position, end, written = self._skip, len(data), 0
        while position < end:
            size = self._frame_size(data, position)
            if size is None:
                break
            if size < 0:
                self._is_other = True
                position = end
                break
            blanks = self._has_secret(data, position)
            if blanks and position + size > end:
                if size <= KEPT_BACK_MAX:
                    break
                self._skip, self._blank = 0, position + size - end
                shown = data[written : position + BODY_FROM]
                return b"".join((*out, shown, BLANK * (end - written - len(shown))))
            if blanks:
                out += (data[written:position], self._blanked(data[position : position + size]))
                written = position + size
            position += size
        if position < end:
            self._kept = data[position:]
            out.append(data[written:position])
            self._skip = 0
        else:
            out.append(data[written:])
            self._skip = position - end
        return b"".join(out) if len(out) > 1 else out[0]

    def rest(self) -> bytes:
        """What was kept back, when nothing more comes: the beginning of a frame."""
        kept, self._kept = self._kept, b""
        return kept[:BODY_FROM] + BLANK * len(kept[BODY_FROM:])

    @abstractmethod
    def _frame_size(self, data: bytes, position: int) -> int | None:
        """With its size field; None while that has not come, -1 where this is no frame."""

    @abstractmethod
    def _has_secret(self, data: bytes, position: int) -> bool:
        """Of a whole frame's head, which is there."""

    @abstractmethod
    def _blanked(self, frame: bytes) -> bytes:
        """Of the same length. `frame` is whole."""


class RequestFilter(FrameFilter):
    def __init__(self) -> None:
        super().__init__()
        self._tokens = 0
        self.secret_answers: deque[tuple[int, int] | None] = deque()
        """Correlation id and version of requests whose answers have secrets; None for tokens without a header."""

    def _passes(self, data: bytes) -> bool:
        if self._kept or self._blank or self._is_other or self._tokens:
            return False
        position, end = self._skip, len(data)
        while end - position >= _API.size:
            size, api = _SIZE_AND_API.unpack_from(data, position)
            if api in _LOOKED_AT or not 8 <= size <= FRAME_BYTES_MAX:
                return False
            position += size + 4
        if position < end:
            return False
        self._skip = position - end
        return True

    def _frame_size(self, data: bytes, position: int) -> int | None:
        if len(data) - position < (4 if self._tokens else _API.size):
            return None
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        return size + 4 if (0 if self._tokens else 8) <= size <= FRAME_BYTES_MAX else -1

    def _has_secret(self, data: bytes, position: int) -> bool:
        if self._tokens:
            return True
        api, version = _API.unpack_from(data, position)[1:]
        if api == SASL_HANDSHAKE and version == 0:
            return True
        return api in WITH_SECRETS

    def _blanked(self, frame: bytes) -> bytes:
        if self._tokens:
            self._tokens -= 1
            self.secret_answers.append(None)
            return frame[:4] + BLANK * (len(frame) - 4)
        _, api, version = _API.unpack_from(frame)
        if api == SASL_HANDSHAKE:
            mechanism = frame[BODY_FROM:].rpartition(b"\0")[2][1:]
            self._tokens = TOKENS_MAX.get(mechanism, OTHER_TOKENS_MAX)
            return frame
        if api == SASL_AUTHENTICATE:
            self.secret_answers.append((int.from_bytes(frame[8:12], "big", signed=True), version))
        return _without_secrets(frame, api, version)


class ResponseFilter(FrameFilter):
    def __init__(self, requests: RequestFilter) -> None:
        super().__init__()
        self._requests = requests

    def _passes(self, data: bytes) -> bool:
        if self._kept or self._blank or self._is_other or self._requests.secret_answers:
            return False
        position, end = self._skip, len(data)
        while end - position >= 8:
            size = _SIZE.unpack_from(data, position)[0]
            if not 0 <= size <= FRAME_BYTES_MAX:
                return False
            position += size + 4
        if position < end:
            return False
        self._skip = position - end
        return True

    def _frame_size(self, data: bytes, position: int) -> int | None:
        if len(data) - position < 8 and not self._expects_token():
            return None
        if len(data) - position < 4:
            return None
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        return size + 4 if 0 <= size <= FRAME_BYTES_MAX else -1

    def _expects_token(self) -> bool:
        secret = self._requests.secret_answers
        return bool(secret) and secret[0] is None

    def _has_secret(self, data: bytes, position: int) -> bool:
        secret = self._requests.secret_answers
        if not secret:
            return False
        if secret[0] is None:
            return True
        return int.from_bytes(data[position + 4 : position + 8], "big", signed=True) == secret[0][0]

    def _blanked(self, frame: bytes) -> bytes:
        answered = self._requests.secret_answers.popleft()
        if answered is None:
            return frame[:4] + BLANK * (len(frame) - 4)
        return _blanked_message(frame, APIS[SASL_AUTHENTICATE].response_class(), answered[1], 8)


def _without_secrets(frame: bytes, api: int, version: int) -> bytes:
    known = APIS.get(api)
    if known is None or not known.min_version <= version <= known.max_version or len(frame) < _START.size:
        return frame[:BODY_FROM] + BLANK * (len(frame) - BODY_FROM)
    return _blanked_message(
        frame, known.request_class(), version, _START.size + max(0, int(_START.unpack_from(frame)[4]))
    )


def _blanked_message(frame: bytes, cls: type[Message], version: int, header_end: int) -> bytes:
    """The same frame, of the same length; one that cannot be parsed has no body any more."""
    try:
        body = skip_header_tags(frame, header_end, len(frame)) if is_flexible(cls, version) else header_end
        message, end = decode(cls, version, frame, body)
        blanked = frame[:body] + encode(_blank_fields(message), version) + frame[end:]
    except (DecodeError, struct.error, AssertionError):
        blanked = b""
    return blanked if len(blanked) == len(frame) else frame[:BODY_FROM] + BLANK * (len(frame) - BODY_FROM)


def _blank_fields(message: Any) -> Any:
    cls: Any = message.__class__
    for field in fields_of(cls):
        value: Any = getattr(message, field.name)
        if field.name in SECRET_FIELDS and value:
            setattr(message, field.name, BLANK * len(value))
        elif field.name == "value" and value and is_secret_config(getattr(message, "name", "")):
            message.value = "*" * len(value.encode())
        elif field.is_array and field.struct is not None:
            for each in value or ():
                _blank_fields(each)
    return message


def is_secret_config(name: str) -> bool:
    """By its name, so that a config which no broker knows is one too."""
    return any(word in name.lower() for word in SECRET_CONFIGS)

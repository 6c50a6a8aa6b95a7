"""Decoding and encoding messages. Codecs are compiled when they are first asked for and kept.

    message, position = decode(HeartbeatRequest, 4, frame, offset)
    data = encode(HeartbeatResponse(error_code=0), 4)

A caller that handles many messages of one version keeps the compiled function itself: `decoder(cls, version)` is
called as `(view, offset, end)`, `encoder(cls, version)` as `(message)`.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ottla.protocol.primitives import Buffer, DecodeError
from ottla.protocol.schema import Message

M = TypeVar("M", bound=Message)

Parts = list[bytes | bytearray | memoryview]

_decoders: dict[tuple[type[Message], int], Any] = {}
_encoders: dict[tuple[type[Message], int, str], Any] = {}


def decoder(cls: type[M], version: int) -> Callable[[memoryview, int, int], tuple[M, int]]:
    """The compiled `decode(view, offset, end) -> (message, next offset)`.

    `records` fields, and those marked `view`, are parts of the view; nothing else of the message refers to it. Whether
    bytes are left after the message is for the caller to check. Raises DecodeError and nothing else, for any bytes.
    """
    function = _decoders.get((cls, version))
    if function is None:
        from ottla.protocol.decoding import compile_decoder

        _check_version(cls, version)
        function = _decoders[cls, version] = compile_decoder(cls, version)
    return function  # type: ignore[no-any-return]


def decode(cls: type[M], version: int, buffer: Buffer, offset: int = 0, end: int | None = None) -> tuple[M, int]:
    """Decode one message; give it and the offset after it."""
    return decoder(cls, version)(memoryview(buffer), offset, len(buffer) if end is None else end)


def decode_whole(cls: type[M], version: int, buffer: Buffer, offset: int = 0, end: int | None = None) -> M:
    """Decode a message that must end where the bytes do."""
    if end is None:
        end = len(buffer)
    message, position = decoder(cls, version)(memoryview(buffer), offset, end)
    if position != end:
        raise DecodeError(f"{end - position} bytes left after {cls.__name__} version {version}")
    return message


def encoder(cls: type[M], version: int) -> Callable[[M], bytes]:
    """The compiled `encode(message) -> bytes`."""
    return _encoder(cls, version, "body")  # type: ignore[no-any-return]


def encode(message: Message, version: int) -> bytes:
    """The bytes of a message. Fields that the version does not have are left out."""
    return _encoder(type(message), version, "body")(message)  # type: ignore[no-any-return]


def frame_encoder(cls: type[M], version: int) -> Callable[[M, int], bytes]:
    """The compiled `encode(response, correlation_id) -> bytes` of a whole frame: size, header and body."""
    return _encoder(cls, version, "frame")  # type: ignore[no-any-return]


def frame_parts_encoder(cls: type[M], version: int) -> Callable[[M, int], Parts]:
    """As `frame_encoder`, but a list of buffers in which record buffers stand uncopied."""
    return _encoder(cls, version, "frame_parts")  # type: ignore[no-any-return]


def frame_slices_encoder(cls: type[M], version: int) -> Callable[[M, int], Generator[None, None, bytes]]:
    """As `frame_encoder`, for messages of any length: a generator that returns the frame, and yields whenever it has
    worked for some milliseconds."""
    return _encoder(cls, version, "frame_slices")  # type: ignore[no-any-return]


def _encoder(cls: type[Message], version: int, shape: str) -> Any:
    function = _encoders.get((cls, version, shape))
    if function is None:
        from ottla.protocol.encoding import Shape, compile_encoder

        _check_version(cls, version)
        function = _encoders[cls, version, shape] = compile_encoder(cls, version, Shape(shape))
    return function


def _check_version(cls: type[Message], version: int) -> None:
    first, last = cls.VERSIONS
    assert first <= version <= last, f"{cls.__name__} has no version {version}, only {first} to {last}"

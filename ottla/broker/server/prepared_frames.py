"""Answers that are asked for again and again, kept as bytes."""

from collections.abc import Hashable
from typing import Any

FRAMES_KEPT_MAX = 256


class PreparedFrame:
    """A whole answer as bytes, made before and used again with other correlation ids."""

    __slots__ = ("_after", "_size")

    def __init__(self, frame: bytes) -> None:
        self._size = frame[:4]
        self._after = frame[8:]

    def with_correlation_id(self, correlation_id: int) -> bytes:
        return b"%b%b%b" % (self._size, correlation_id.to_bytes(4, "big", signed=True), self._after)


class PreparedFrames:
    """Answers made from one state of something; when it is another one, they are forgotten."""

    def __init__(self) -> None:
        self._state: Any = None
        self._frames: dict[Hashable, PreparedFrame] = {}

    def get(self, state: Any, key: Hashable) -> PreparedFrame | None:
        return self._frames.get(key) if self._state is state else None

    def put(self, state: Any, key: Hashable, frame: PreparedFrame) -> None:
        if self._state is not state or len(self._frames) >= FRAMES_KEPT_MAX:
            self._state = state
            self._frames = {}
        self._frames[key] = frame

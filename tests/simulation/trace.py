"""What a run did, in order, as one hash: two runs with one hash did the same."""

import hashlib
from collections.abc import Callable, Iterable
from zlib import crc32

LINES_HASHED_AT_ONCE = 500


class Trace:
    """`note` every observable thing with the moment it happened at. `keep` holds on to the lines themselves."""

    def __init__(self, now_us: Callable[[], int], *, keep: bool = False) -> None:
        self.now_us = now_us
        self._hash = hashlib.sha256()
        # Not in the hash yet: hashing many lines at once is cheaper.
        self._last: list[str] = []
        self._kept: list[str] | None = [] if keep else None
        self.count = 0

    def note(self, *words: object) -> None:
        line = f"{self.now_us()} {' '.join(map(str, words))}"
        self._last.append(line)
        if len(self._last) >= LINES_HASHED_AT_ONCE:
            self._hash_last()
        self.count += 1
        if self._kept is not None:
            self._kept.append(line)

    def _hash_last(self) -> None:
        self._last.append("")
        self._hash.update("\n".join(self._last).encode())
        self._last.clear()

    def digest(self) -> str:
        if self._last:
            self._hash_last()
        return self._hash.hexdigest()

    def lines(self) -> list[str]:
        assert self._kept is not None, "this trace does not keep its lines"
        return self._kept


def summary(data: bytes | bytearray | memoryview) -> str:
    """Bytes as a trace shows them: how many, and which."""
    return f"{len(data)}:{crc32(data):08x}"


def summary_of_all(buffers: Iterable[bytes | bytearray | memoryview]) -> str:
    size, check = 0, 0
    for buffer in buffers:
        size += len(buffer)
        check = crc32(buffer, check)
    return f"{size}:{check:08x}"

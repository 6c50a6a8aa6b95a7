"""Buffers for large reads, used again as soon as nobody looks at them any more.

A fresh buffer of a megabyte costs as much as reading into it: the kernel finds and clears its pages, then Python clears
them again. An answer lets go of its buffer when the socket has taken the last byte, usually before the next read.
"""

import sys
import threading

LARGE_BYTES = 64 * 1024
KEPT_BYTES_MAX = (1 << 20) + LARGE_BYTES
KEPT_MAX = 4
# The list, the local name and the argument of the call. Views of a buffer add one between them.
_REFERENCES_WHEN_FREE = 3


class ReadBuffers(threading.local):
    """One set per thread: each loop has its own, and no two threads are ever handed the same buffer."""

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """A buffer of `size` bytes with whatever is in it. It is the caller's until the last view of it is gone."""
        if not LARGE_BYTES <= size <= KEPT_BYTES_MAX:
            return memoryview(bytearray(size))
        for buffer in self._kept:
            if sys.getrefcount(buffer) == _REFERENCES_WHEN_FREE:
                return memoryview(buffer)[:size]
        buffer = bytearray(KEPT_BYTES_MAX)
        if len(self._kept) < KEPT_MAX:
            self._kept.append(buffer)
        return memoryview(buffer)[:size]

"""Buffers of one size, used again as soon as no view of them is left.

A fresh buffer of a megabyte costs as much as what is read into it: the kernel finds and clears its pages, then Python
clears them again. No one place knows when the last view of a used one is gone: it may lie in a connection, in a
transport that still has to send it, or with followers that will ask for it. The buffer's count of references says it.

Large reads take theirs from `ReadBuffers`. A response lets go of its buffer when the socket has taken the last byte,
usually before the next read.
"""

import sys
import threading


def _references(buffers: list[bytearray], position: int) -> int:
    return sys.getrefcount(buffers[position])


# Of a buffer that only its list refers to. Interpreters count the call itself differently.
_WHEN_FREE = _references([bytearray()], 0)


class BufferPool:
    """At most `count_max` buffers of `size` bytes. Not for more than one thread."""

    def __init__(self, size: int, count_max: int) -> None:
        self._size = size
        self._count_max = count_max
        self._buffers: list[bytearray] = []
        # How many it has taken at once since `release_idle`.
        self._needed = 0

    @property
    def count(self) -> int:
        """Of buffers that there are, in use or not."""
        return len(self._buffers)

    def take(self) -> memoryview | None:
        """A whole buffer, with whatever is in it, and the caller's until the last view of it is gone. None: all are in
        use. Few are used again and again, the others when it takes more: the processor has those few at hand."""
        buffers = self._buffers
        for position in range(len(buffers)):
            if _references(buffers, position) == _WHEN_FREE:
                if position >= self._needed:
                    self._needed = position + 1
                return memoryview(buffers[position])
        if len(buffers) >= self._count_max:
            return None
        buffers.append(bytearray(self._size))
        self._needed = len(buffers)
        return memoryview(buffers[-1])

    def release_idle(self) -> None:
        """Lets go of the buffers that `take` has not come to since the last call: when the load that needed them is
        over, their memory would stay with the process for ever."""
        buffers = self._buffers
        for position in reversed(range(self._needed, len(buffers))):
            if _references(buffers, position) == _WHEN_FREE:
                del buffers[position]
        self._needed = 0


LARGE_BYTES = 64 * 1024
# What consumers ask for by default, and what a follower does; the beginning of the batch behind it is read too.
POOLS = (((1 << 20) + LARGE_BYTES, 4), ((4 << 20) + LARGE_BYTES, 2))
"""(bytes of a buffer, how many are kept), the smallest first."""


class ReadBuffers(threading.local):
    """One set per thread: each loop has its own, and no two threads are ever handed the same buffer."""

    def __init__(self) -> None:
        self._pools = [(size, BufferPool(size, count)) for size, count in POOLS]

    def take(self, size: int) -> memoryview:
        """A buffer of `size` bytes with whatever is in it. It is the caller's until the last view of it is gone."""
        if size >= LARGE_BYTES:
            for largest, pool in self._pools:
                if size <= largest:
                    buffer = pool.take()
                    return memoryview(bytearray(size)) if buffer is None else buffer[:size]
        return memoryview(bytearray(size))

    def release_idle(self) -> None:
        """Of the calling thread: lets go of what no read has needed since the last call."""
        for _, pool in self._pools:
            pool.release_idle()

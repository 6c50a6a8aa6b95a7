"""Buffers for large reads. An answer lets go of its buffer when the socket has taken the last byte, usually before the
next read."""

import threading

from ottla.storage.buffer_pool import BufferPool

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

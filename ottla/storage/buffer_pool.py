"""Buffers of one size, used again as soon as no view of them is left.

A fresh buffer of a megabyte costs as much as what is read into it: the kernel finds and clears its pages, then Python
clears them again. No single place knows when the last view of a used one is gone: it may lie in a connection, in a
transport that still has to send it, or with followers that will fetch it. Only the buffer's reference count shows it.
"""

import sys


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

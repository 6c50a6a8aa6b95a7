"""The buffers that sockets are read into: one that all connections of the loop share, and a few that go round.

What a read delivers is handled or kept before the next read, so one buffer serves everyone. The beginning of a large
frame would have to be copied out of it, into fresh memory that the kernel first has to find and clear: for a producer
of megabytes that costs half as much again as receiving and writing them. Instead the connection keeps the buffer with
the beginning in it, and a spare one becomes the shared one until the frame is complete.

The buffers that go round are few, so that clients which begin frames and do not end them hold a few megabytes at most
(I-27). Whoever comes when all are lent copies, as do frames that are larger than a buffer.
"""

# A frame with a batch of the default `max.message.bytes`, 1 MiB, and the small beginning of the one behind it.
BUFFER_BYTES = (1 << 20) + (64 << 10)
LENT_MAX = 4


class ReceiveBuffers:
    def __init__(self) -> None:
        self.shared = memoryview(bytearray(BUFFER_BYTES))
        self._spares: list[memoryview] = []
        self._lent = 0

    def lend(self, view: memoryview, start: int, end: int, size: int) -> memoryview | None:
        """A buffer of `size` bytes that begins with `view[start:end]`, until `give_back`. None: there is none."""
        if size > BUFFER_BYTES or self._lent >= LENT_MAX:
            return None
        spare = self._spares.pop() if self._spares else memoryview(bytearray(BUFFER_BYTES))
        self._lent += 1
        if view is self.shared and start + size <= BUFFER_BYTES:
            self.shared = spare
            return view[start : start + size]
        spare[: end - start] = view[start:end]
        return spare[:size]

    def give_back(self, lent: memoryview) -> None:
        self._lent -= 1
        self._spares.append(memoryview(lent.obj))

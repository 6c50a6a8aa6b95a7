"""The buffers that sockets are read into: one that all connections of the loop share, and a few that go round.

What a read delivers is handled or kept before the next read, so one buffer serves everyone. The beginning of a large
frame would have to be copied out of it, into fresh memory that the kernel first has to find and clear: for a producer
of megabytes that costs half as much again as receiving and writing them. Instead the connection keeps the buffer with
the beginning in it, and another becomes the shared one until the frame is complete. In the same way the records of a
long append stay where they are for the followers that will fetch them (`RecentAppends`).

The buffers that connections keep are few, so that clients which begin frames and do not end them hold a few megabytes
at most (I-27). When all are lent, the next connection copies, as it does with frames that are larger than a buffer.
"""

import sys
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

from ottla.replication.recent_appends import COPIED_BYTES_MAX, HELD_BYTES_MAX
from ottla.storage.buffer_pool import BufferPool

# A frame with a batch of the default `max.message.bytes`, 1 MiB, and the small beginning of the one behind it.
BUFFER_BYTES = (1 << 20) + (64 << 10)
LENT_MAX = 4
# Those kept for followers, those lent, the shared one, and what is on its way to followers though it is kept no more.
BUFFERS_MAX = HELD_BYTES_MAX // BUFFER_BYTES + LENT_MAX + 8
# Of a read event no longer than this, nothing is ever kept in place.
SHORT_READ_MAX = COPIED_BYTES_MAX
# Of what arrives while a connection handles nothing.
KEPT_WHILE_HELD = 64 * 1024
SMALLEST_OWN_BUFFER = 4096
# Frames of this size are put together in a lent buffer; smaller ones are copied sooner than it is found.
LARGE_FRAME = 64 * 1024
# Frames of this size are received without being copied as their buffers grow: where the kernel can do that.
MAPPED_FRAME = 4 << 20 if sys.platform == "linux" else 1 << 62
_NONE = memoryview(b"")


class ReceiveBuffers:
    def __init__(self) -> None:
        self._pool = BufferPool(BUFFER_BYTES, BUFFERS_MAX)
        self._lent = 0
        self.shared = self._another()

    @property
    def lent(self) -> int:
        return self._lent

    def renew(self) -> None:
        """Called when a long read into `shared` has been handled, and the caller holds no view of it any more: where a
        part of it is kept, another buffer takes its place."""
        self.shared = _NONE
        self.shared = self._another()

    def release_idle(self) -> None:
        """Lets go of what no connection has needed since the last call."""
        self._pool.release_idle()

    def _another(self) -> memoryview:
        buffer = self._pool.take()
        return memoryview(bytearray(BUFFER_BYTES)) if buffer is None else buffer

    def lend(self, view: memoryview, start: int, end: int, size: int) -> memoryview | None:
        """A buffer of `size` bytes that begins with `view[start:end]`, until `give_back`. None: there is none."""
        if size > BUFFER_BYTES or self._lent >= LENT_MAX:
            return None
        spare = self._pool.take()
        if spare is None:
            return None
        self._lent += 1
        if view is self.shared and start + size <= BUFFER_BYTES:
            self.shared = spare
            return view[start : start + size]
        spare[: end - start] = view[start:end]
        return spare[:size]

    def give_back(self) -> None:
        """A connection no longer needs what was lent to it."""
        self._lent -= 1


class KeptBytes:
    """What a connection has received and not handled, with room for more, in a buffer of its own or a lent one.

    That of a very long frame is a mapping, which the kernel makes longer without copying what is in it."""

    __slots__ = ("_frame_bytes", "_lender", "_mapping", "filled", "start", "view")

    def __init__(self, view: memoryview, filled: int, lender: ReceiveBuffers | None = None) -> None:
        self.view = view
        # What is before it has been handled. Not zero only while nothing is received.
        self.start = 0
        self.filled = filled
        self._lender = lender
        self._mapping: mmap | None = None
        self._frame_bytes = 0

    @classmethod
    def copied(cls, view: memoryview, start: int, end: int, capacity: int) -> "KeptBytes":
        """In a buffer for `capacity` bytes, but never much larger than what has arrived."""
        received = end - start
        own = memoryview(bytearray(_room_for(received, capacity)))
        own[:received] = view[start:end]
        return cls(own, received)

    @classmethod
    def begun_frame(
        cls, buffers: ReceiveBuffers, view: memoryview, start: int, end: int, frame_bytes: int
    ) -> "KeptBytes":
        """The beginning of a frame, with room to its end or, before most of a long one has arrived, less."""
        if frame_bytes >= MAPPED_FRAME:
            return cls._mapped(view, start, end, frame_bytes)
        lent = buffers.lend(view, start, end, frame_bytes) if frame_bytes >= LARGE_FRAME else None
        return cls.copied(view, start, end, frame_bytes) if lent is None else cls(lent, end - start, buffers)

    @classmethod
    def _mapped(cls, view: memoryview, start: int, end: int, frame_bytes: int) -> "KeptBytes":
        received = end - start
        mapping = mmap(-1, _room_for(received, frame_bytes), MAP_PRIVATE | MAP_ANONYMOUS)
        kept = cls(memoryview(mapping), received)
        kept.view[:received] = view[start:end]
        kept._mapping, kept._frame_bytes = mapping, frame_bytes
        return kept

    @staticmethod
    def announced(view: memoryview, start: int, end: int) -> int:
        """The bytes of the frame that begins there, its size field included; 4 while not even that is there."""
        return 4 if end - start < 4 else 4 + int.from_bytes(view[start : start + 4], "big", signed=True)

    @property
    def will_grow(self) -> bool:
        """Whether `room` makes more of it, as its frame has not arrived in full."""
        return self.filled == len(self.view) < self._frame_bytes

    def room(self) -> memoryview:
        """Where the next bytes go. Call it only when nothing else holds a view of `view`."""
        if self.will_grow:
            assert self._mapping is not None, "only mappings grow"
            self.view.release()
            self._mapping.resize(_room_for(self.filled, self._frame_bytes))
            self.view = memoryview(self._mapping)
        return self.view[self.filled :]

    @property
    def held_bytes(self) -> int:
        """What counts as memory of the connection: not what is lent to it, nor a buffer of the smallest size."""
        size = _room_for(self.filled, self._frame_bytes) if self.will_grow else len(self.view)
        return size if self._lender is None and size > SMALLEST_OWN_BUFFER else 0

    def release(self) -> None:
        if self._lender is not None:
            self._lender.give_back()


def _room_for(received: int, capacity: int) -> int:
    """Clients hold no more memory than a few times what they have sent."""
    return min(capacity, max(SMALLEST_OWN_BUFFER, 4 * received))

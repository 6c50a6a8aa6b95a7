"""What connections hold in memory for their clients, and how much of it all of them together may hold.

A connection holds answers that its client has not read, answers that wait behind a parked request, and requests that
have not come in whole or may not be handled yet. What each of them may hold is bounded in `Connection`; the sum is
bounded here. Fetch answers become smaller while a part of the memory is in use, down to the one batch that is always
sent. Beyond `HELD_BYTES_MAX` the connection that has made no progress for longest is aborted: its client neither reads
nor sends, or by far more slowly than the others.

What 5,000 connections of hostile clients hold at most:

    counted here                                          96 MiB
    unread answers too small to be counted, 16 KiB each   80 MiB   (`WRITE_BUFFER_BYTES`)
    begun frames too small to be counted, 4 KiB each      20 MiB   (`SMALLEST_OWN_BUFFER`)
    the connections themselves, 4 KiB each                20 MiB
    receive buffers that all connections share            13 MiB   (`ReceiveBuffers`)
    one answer being built and copied to the transport    96 MiB   (twice `FETCH_ROOM_BYTES`)
    parked fetches, 0.4 KiB for each partition            40 MiB   (`PARKED_PARTITIONS_MAX`)
    fetch sessions of consumers                           48 MiB   (`CONSUMERS_BYTES_MAX`)
    a thousand TLS handshakes, in place of small answers  44 MiB   (`HANDSHAKES_BYTES_MAX`)

Together 457 MiB; with the 40 MiB of an idle broker one of 512 MiB survives them. A single request is bounded by
`socket.request.max.bytes` alone.
"""

from typing import Protocol

from ottla.broker.server.close_reasons import CloseReason

HELD_BYTES_MAX = 96 << 20
# A thousand TLS handshakes that wait for their clients. They are counted by themselves: who has not even said who it is
# takes nothing from the answers of others.
HANDSHAKES_BYTES_MAX = 64 << 20
# What a transport takes before it holds its connection. The buffers of the operating system are filled first, so that
# clients that read notice nothing of it.
WRITE_BUFFER_BYTES = 16 << 10
# Fetch answers share what is left of this much. A few slow readers of large answers leave room for many small ones.
FETCH_ROOM_BYTES = HELD_BYTES_MAX // 2


class Holder(Protocol):
    def count_unread(self) -> bool:
        """Count again what the client has not read; says whether it has read something since the last time."""
        ...

    def abort(self, reason: CloseReason, why: str) -> None:
        """End the connection now and drop everything it holds."""
        ...


class ConnectionMemory:
    def __init__(self, bytes_max: int = HELD_BYTES_MAX, fetch_room_bytes: int = FETCH_ROOM_BYTES) -> None:
        self.held_bytes = 0
        self._bytes_max = bytes_max
        self._fetch_room_bytes = fetch_room_bytes
        # The one without progress for longest first.
        self._holders: dict[Holder, int] = {}
        # Counting and aborting connections changes what they hold.
        self._is_aborting = False

    def __len__(self) -> int:
        """The number of connections that hold something."""
        return len(self._holders)

    def fetch_room(self) -> int:
        """How many bytes of records a fetch answer may have now, but for the one batch that is always sent."""
        return max(self._fetch_room_bytes - self.held_bytes, 0)

    def set(self, holder: Holder, size_bytes: int) -> None:
        """What the connection holds from now on. A change is progress."""
        self.held_bytes += size_bytes - self._holders.pop(holder, 0)
        if size_bytes:
            self._holders[holder] = size_bytes
            if self.held_bytes > self._bytes_max and not self._is_aborting:
                self._is_aborting = True
                self._abort_slowest(holder)
                self._is_aborting = False

    def made_progress(self, holder: Holder) -> None:
        """The connection holds as much as before, but not the same."""
        size_bytes = self._holders.pop(holder, 0)
        if size_bytes:
            self._holders[holder] = size_bytes

    def _abort_slowest(self, newest: Holder) -> None:
        """`newest` itself may go on: alone it can hold more than all may, by one request or one answer."""
        for holder in list(self._holders):
            if self.held_bytes > self._bytes_max and holder is not newest and not holder.count_unread():
                self._abort(holder)
        # All the others make progress, and still it is too much.
        for holder in list(self._holders):
            if self.held_bytes > self._bytes_max and holder is not newest:
                self._abort(holder)

    def _abort(self, holder: Holder) -> None:
        self.held_bytes -= self._holders.pop(holder, 0)
        why = "its client is too slow while connections hold too much memory"
        holder.abort(CloseReason.SLOW_CLIENT, why)

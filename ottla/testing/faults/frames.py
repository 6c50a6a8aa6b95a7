"""Bytes of responses that are wrong or slow, and connections that end hard."""

import socket
import struct
from contextlib import suppress
from random import Random
from typing import Any, Final

from ottla.testing.faults.plan import FaultPlan

SIZE_BYTES: Final = 4
# Size and correlation id: a client that does not know whose answer it is closes the connection.
HEAD_BYTES: Final = 8
BITS_FLIPPED: Final = 3
LIED_BYTES: Final = 1000
PIECES_PER_S: Final = 20
_LINGER: Final = struct.pack("ii", 1, 0)


def flip_bits(frame: bytes, random: Random) -> bytes:
    """Some bits behind the head are others."""
    changed = bytearray(frame)
    if len(frame) > HEAD_BYTES:
        for _ in range(BITS_FLIPPED):
            changed[random.randrange(HEAD_BYTES, len(frame))] ^= 1 << random.randrange(8)
    return bytes(changed)


def longer_than_it_is(frame: bytes) -> bytes:
    """Its size says that more comes."""
    size = int.from_bytes(frame[:SIZE_BYTES], "big") + LIED_BYTES
    return size.to_bytes(SIZE_BYTES, "big") + frame[SIZE_BYTES:]


def send_in_pieces(runtime: Any, plan: FaultPlan, context: Any, frame: bytes) -> None:
    """Its bytes one piece after the other, the last one as the answer. All before it have been answered."""
    size, wait_ms = len(frame), 0
    for each in plan.slices:
        size, wait_ms = min(size, each.size), wait_ms + each.delay
    if plan.bytes_per_s:
        if not plan.slices:
            size = min(size, max(1, plan.bytes_per_s // PIECES_PER_S))
        wait_ms = max(wait_ms, size * 1000 // plan.bytes_per_s)

    def send(position: int) -> None:
        if position + size >= len(frame) or context.connection.is_closed:
            context.complete(None, frame[position:])
            return
        context.connection.transport.write(frame[position : position + size])
        runtime.schedule(max(wait_ms, 1), lambda: send(position + size))

    if plan.bytes_per_s and len(frame) <= size:
        runtime.schedule(max(wait_ms, 1), lambda: send(0))
    else:
        send(0)


def set_linger(connection: Any) -> None:
    """Its end is a reset: what was not read yet is lost too."""
    transport = connection.transport
    found = None if transport is None else transport.get_extra_info("socket")
    if found is not None:
        with suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)

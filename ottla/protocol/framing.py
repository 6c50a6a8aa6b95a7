"""Frames: a signed 32-bit size, then that many bytes."""

from typing import Final

from ottla.protocol.primitives import Buffer, DecodeError

SIZE_BYTES: Final = 4


def parse_frame_size(buffer: Buffer, position: int, size_max: int) -> int:
    """The size of the frame whose four size bytes start at `position`, checked before anything is allocated for it."""
    size = int.from_bytes(buffer[position : position + SIZE_BYTES], "big", signed=True)
    if not 0 <= size <= size_max:
        raise DecodeError(f"frame of {size} bytes, at most {size_max} allowed")
    return size

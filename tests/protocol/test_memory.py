"""Decoding takes at most 24 bytes per byte of a request and 66 per byte of a response, plus 64 KiB (§1.7), however the
bytes are chosen."""

import contextlib
import tracemalloc

import pytest

from ottla.protocol.codec import decoder
from ottla.protocol.memory import uncharged_size
from ottla.protocol.primitives import DecodeError
from ottla.protocol.schema import Message, is_flexible
from tests.protocol.costly_messages import costly_frames
from tests.protocol.known_messages import REQUESTS, RESPONSES

PER_BYTE = 24
PER_BYTE_OF_A_RESPONSE = 66
BASE = 64 * 1024
LARGER_FRAME = 6000


def peak_of_decoding(cls: type[Message], version: int, frame: bytes) -> int:
    decode = decoder(cls, version)
    view = memoryview(frame)
    with contextlib.suppress(DecodeError):  # What is compiled on first use is no cost of the frame.
        decode(view, 0, len(frame))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        with contextlib.suppress(DecodeError):
            _message = decode(view, 0, len(frame))
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_the_costliest_requests_stay_within_the_bound(cls: type[Message]) -> None:
    version = cls.VERSIONS[1]
    largest_uncharged = uncharged_size(cls, version, is_flexible(cls, version))
    for size in {min(largest_uncharged, LARGER_FRAME), LARGER_FRAME}:
        for frame in costly_frames(cls, version, size):
            assert peak_of_decoding(cls, version, frame) <= PER_BYTE * len(frame) + BASE


@pytest.mark.parametrize("cls", RESPONSES, ids=lambda cls: cls.__name__)
def test_the_costliest_responses_stay_within_the_bound(cls: type[Message]) -> None:
    version = cls.VERSIONS[1]
    for frame in costly_frames(cls, version, LARGER_FRAME):
        assert peak_of_decoding(cls, version, frame) <= PER_BYTE_OF_A_RESPONSE * len(frame) + BASE

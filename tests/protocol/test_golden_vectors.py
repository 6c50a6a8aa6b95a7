"""Every version against bytes that another implementation wrote, whole, cut short, with bytes to spare."""

import pytest

from ottla.protocol.codec import (
    decode,
    decode_whole,
    decoder,
    encode,
    frame_encoder,
    frame_parts_encoder,
    frame_slices_encoder,
)
from ottla.protocol.primitives import DecodeError
from ottla.protocol.schema import Message, response_header_is_tagged
from tests.protocol.golden_vectors import message_of, values_of, vectors_of
from tests.protocol.known_messages import MESSAGES, RESPONSES, versions

every_message = pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)


@every_message
def test_there_is_a_vector_for_each_version(cls: type[Message]) -> None:
    assert [version for version, _, _ in vectors_of(cls)] == list(versions(cls))


@every_message
def test_vectors_decode_to_values_and_encode_to_bytes(cls: type[Message]) -> None:
    for version, data, values in vectors_of(cls):
        message = decode_whole(cls, version, data)

        assert values_of(message, version) == values
        assert encode(message, version) == data
        assert encode(message_of(cls, values), version) == data


@every_message
def test_every_prefix_is_refused_also_in_front_of_other_bytes(cls: type[Message]) -> None:
    for version, data, _ in vectors_of(cls):
        decode_prefix = decoder(cls, version)
        followed = memoryview(data + bytes(range(256)))
        for size in range(len(data)):
            with pytest.raises(DecodeError):
                decode_prefix(memoryview(data[:size]), 0, size)
            with pytest.raises(DecodeError):
                decode_prefix(followed, 0, size)


@every_message
def test_a_message_is_found_in_the_middle_of_a_buffer(cls: type[Message]) -> None:
    for version, data, values in vectors_of(cls):
        buffer = bytearray(b"before") + data + b"after"

        message, position = decode(cls, version, buffer, 6, 6 + len(data))

        assert position == 6 + len(data)
        assert values_of(message, version) == values


@every_message
def test_bytes_left_over_are_counted_and_refused(cls: type[Message]) -> None:
    """§1.7.7"""
    for version, data, _ in vectors_of(cls):
        with pytest.raises(DecodeError, match=f"3 bytes left after {cls.__name__} version {version}"):
            decode_whole(cls, version, data + b"\0\0\0")


@pytest.mark.parametrize("cls", RESPONSES, ids=lambda cls: cls.__name__)
def test_a_response_frame_is_size_header_and_body(cls: type[Message]) -> None:
    for version, data, values in vectors_of(cls):
        tags = 1 if response_header_is_tagged(cls, version) else 0
        expected = (4 + tags + len(data)).to_bytes(4, "big") + (77).to_bytes(4, "big") + bytes(tags) + data

        assert frame_encoder(cls, version)(message_of(cls, values), 77) == expected
        assert b"".join(frame_parts_encoder(cls, version)(message_of(cls, values), 77)) == expected
        with pytest.raises(StopIteration) as end:
            next(frame_slices_encoder(cls, version)(message_of(cls, values), 77))
        assert end.value.value == expected

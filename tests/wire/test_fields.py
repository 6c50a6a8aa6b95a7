"""The fields of messages and their places in the bytes, beside the compiled decoders."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.codec import decode, encode
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.primitives import DecodeError
from ottla.protocol.records.record import Record, build_batch
from ottla.protocol.schema import Message, fields_of
from ottla.testing.wire_capture.fields import FieldPlace, places, plain, record_lines, shown_value
from tests.protocol.known_messages import REQUESTS, RESPONSES, every_version
from tests.protocol.random_messages import random_message

KINDS = [(cls, version) for cls, version in every_version() if cls in REQUESTS or cls in RESPONSES]


def found(cls: type[Message], version: int, data: bytes) -> list[FieldPlace]:
    return list(places(cls, version, data, 0))


def values(message: Message, version: int, path: str = "") -> dict[str, Any]:
    """Of the fields without elements, by path."""
    flat: dict[str, Any] = {}
    for field in fields_of(type(message)):
        if version in field.versions:
            flat |= values_of(getattr(message, field.name), version, f"{path}.{field.name}".removeprefix("."))
    return flat


def values_of(value: Any, version: int, path: str) -> dict[str, Any]:
    match value:
        case Message():
            return values(value, version, path)
        case list():
            return {
                name: each
                for index, element in enumerate(value)
                for name, each in values_of(element, version, f"{path}[{index}]").items()
            }
        case memoryview():
            return {path: bytes(value)}
        case _:
            return {path: value}


@settings(max_examples=400)
@given(st.sampled_from(KINDS), st.integers(0, 1 << 32))
def test_places_follow_each_other_and_have_the_decoded_values(kind: tuple[type[Message], int], seed: int) -> None:
    cls, version = kind
    data = encode(random_message(cls, version, random.Random(seed)), version)
    decoded, end = decode(cls, version, data)

    read = found(cls, version, data)

    edges = [0, *(each.end for each in read)]
    assert [each.start for each in read] == edges[:-1]
    assert edges[-1] == end
    expected = values(decoded, version)
    shown = {each.path: each.value for each in read if each.type_name not in ("count", "tags")}
    assert {path: expected[path] for path in shown} == shown


@given(st.sampled_from(KINDS), st.binary(max_size=200))
def test_any_bytes_give_places_or_a_decode_error(kind: tuple[type[Message], int], data: bytes) -> None:
    cls, version = kind
    read: list[FieldPlace] = []
    try:
        for place in places(cls, version, data, 0):
            read.append(place)
            assert isinstance(shown_value(place), str)
    except DecodeError:
        pass
    assert len(read) <= 3 * len(data) + 100


def test_truncated_message_shows_what_comes_before_its_end() -> None:
    data = encode(JoinGroupRequest(group_id="shop", session_timeout_ms=6000), 5)
    read: list[FieldPlace] = []

    with pytest.raises(DecodeError, match="ends inside a field"):
        read.extend(places(JoinGroupRequest, 5, data[:10], 0))

    assert [(each.path, each.value) for each in read] == [("group_id", "shop"), ("session_timeout_ms", 6000)]


def test_secrets_are_hidden_unless_they_are_asked_for() -> None:
    (place,) = found(SaslAuthenticateRequest, 1, encode(SaslAuthenticateRequest(auth_bytes=b"sesame"), 1))

    assert shown_value(place) == "[hidden, 6 bytes]"
    assert shown_value(place, hides_secrets=False) == "6 bytes 'sesame'"
    assert plain(SaslAuthenticateRequest(auth_bytes=b"sesame"), 1) == {"auth_bytes": "[hidden, 6 bytes]"}


def test_records_are_shown_by_their_lengths_and_begins() -> None:
    batch = bytes(build_batch([Record(key=None, value=b"x" * 40), Record(key=b"\0k", value=None)]))

    lines = list(record_lines(batch + batch[:20]))

    assert lines == [
        "offsets 0-1, none",
        f"  0: key null, value 40 bytes '{'x' * 32}…'",
        "  1: key 2 bytes '.k', value null",
    ]


def test_topic_ids_are_written_as_kafka_writes_them() -> None:
    request = FetchRequest()
    assert plain(request, 13)["topics"] == []
    place = FieldPlace("topic_id", 0, 16, bytes(range(16)), "uuid")

    assert shown_value(place) == "AAECAwQFBgcICQoLDA0ODw"

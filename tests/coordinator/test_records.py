"""The bytes in `__consumer_offsets` (§11).

No independent codec for these records is among the development dependencies. The vectors are those of docs/semantics
§11.8 and others put together by hand, field by field, from Kafka's message definitions.
"""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.records import (
    CommittedOffset,
    GroupMetadata,
    GroupMetadataKey,
    OffsetCommitKey,
    StoredMember,
    UnreadRecord,
    build_group_metadata_key,
    build_group_metadata_value,
    build_offset_commit_key,
    build_offset_commit_value,
    parse_group_metadata_value,
    parse_key,
    parse_offset_commit_value,
)
from ottla.protocol.primitives import DecodeError


def string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def data(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


# Keys


def test_the_vectors_of_the_specification() -> None:
    """§11.8"""
    assert build_offset_commit_key("g", "t", 3) == bytes.fromhex("0001 0001 67 0001 74 00000003")
    assert build_group_metadata_key("g") == bytes.fromhex("0002 0001 67")
    value = build_offset_commit_value(CommittedOffset(42, -1, "", 1000))
    assert value == bytes.fromhex("0003 000000000000002a ffffffff 0000 00000000000003e8")


@pytest.mark.parametrize("version", [0, 1])
def test_both_versions_of_an_offset_key_are_read(version: int) -> None:
    key = struct.pack(">h", version) + string("grüpp") + string("t") + struct.pack(">i", 7)
    assert parse_key(key) == OffsetCommitKey("grüpp", "t", 7)


def test_a_group_key_is_read() -> None:
    assert parse_key(struct.pack(">h", 2) + string("g")) == GroupMetadataKey("g")


@pytest.mark.parametrize("version", [*range(3, 17), -1, 32767])
def test_other_keys_are_not_ours(version: int) -> None:
    assert isinstance(parse_key(struct.pack(">h", version) + string("g")), UnreadRecord)


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\1", b"\0\1\0\5g", b"\0\2\0\5g", b"\0\1\0\1g\0\1t\0\0"])
def test_a_broken_key_is_an_error(key: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_key(key)


# Offset commit values, as each version lays them out

NOTE = string("note")
OFFSET_VALUES = {
    0: (struct.pack(">hq", 0, 42) + NOTE + struct.pack(">q", 1000), CommittedOffset(42, -1, "note", 1000)),
    1: (struct.pack(">hq", 1, 42) + NOTE + struct.pack(">qq", 1000, 2000), CommittedOffset(42, -1, "note", 1000, 2000)),
    2: (struct.pack(">hq", 2, 42) + NOTE + struct.pack(">q", 1000), CommittedOffset(42, -1, "note", 1000)),
    3: (struct.pack(">hqi", 3, 42, 5) + NOTE + struct.pack(">q", 1000), CommittedOffset(42, 5, "note", 1000)),
    4: (
        struct.pack(">hqi", 4, 42, 5) + compact("note") + struct.pack(">q", 1000) + b"\0",
        CommittedOffset(42, 5, "note", 1000),
    ),
}


@pytest.mark.parametrize(("value", "expected"), OFFSET_VALUES.values(), ids=OFFSET_VALUES.keys())
def test_every_version_of_an_offset_value_is_read(value: bytes, expected: CommittedOffset) -> None:
    assert parse_offset_commit_value(value) == expected


@pytest.mark.parametrize("version", [1, 3])
def test_offset_values_are_written_as_kafka_does(version: int) -> None:
    """Version 3, or 1 when it has an expiry of its own."""
    value, committed = OFFSET_VALUES[version]
    assert build_offset_commit_value(committed) == value


def test_unknown_value_version_is_no_offset_and_no_metadata() -> None:
    assert parse_offset_commit_value(b"\0\5rest") is None
    assert parse_group_metadata_value(b"\0\5rest") is None


@pytest.mark.parametrize("value", [value[:-1] for value, _ in OFFSET_VALUES.values()] + [b"", b"\0"])
def test_a_broken_offset_value_is_an_error(value: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_offset_commit_value(value)


# Group metadata values


def metadata_value(version: int) -> bytes:
    member = string("m")
    if version >= 3:
        member += string("instance")
    member += string("client") + string("/host")
    if version >= 1:
        member += struct.pack(">i", 60_000)
    member += struct.pack(">i", 10_000) + data(b"sub") + data(b"assigned")
    head = struct.pack(">h", version) + string("consumer") + struct.pack(">i", 7) + string("range") + string("m")
    if version >= 2:
        head += struct.pack(">q", 1234)
    return head + struct.pack(">i", 1) + member


def flexible_metadata_value() -> bytes:
    member = b"".join(compact(text) for text in ("m", "instance", "client", "/host"))
    member += struct.pack(">ii", 60_000, 10_000) + b"\4sub" + b"\x09assigned" + b"\0"
    head = struct.pack(">h", 4) + compact("consumer") + struct.pack(">i", 7) + compact("range") + compact("m")
    return head + struct.pack(">q", 1234) + b"\2" + member + b"\0"


def metadata(version: int) -> GroupMetadata:
    return GroupMetadata(
        protocol_type="consumer",
        generation=7,
        protocol_name="range",
        leader_id="m",
        state_timestamp_ms=1234 if version >= 2 else -1,
        members=(
            StoredMember(
                member_id="m",
                group_instance_id="instance" if version >= 3 else None,
                client_id="client",
                client_host="/host",
                rebalance_timeout_ms=60_000 if version >= 1 else 10_000,
                session_timeout_ms=10_000,
                subscription=b"sub",
                assignment=b"assigned",
            ),
        ),
    )


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_group_metadata_is_read(version: int) -> None:
    """§4.4.4: version 0 has no rebalance timeout, so the session timeout stands in."""
    value = flexible_metadata_value() if version == 4 else metadata_value(version)
    assert parse_group_metadata_value(value) == metadata(version)


def test_group_metadata_is_written_in_version_3() -> None:
    assert build_group_metadata_value(metadata(3)) == metadata_value(3)


def test_an_empty_group_has_neither_protocol_nor_leader() -> None:
    empty = GroupMetadata("consumer", 2, None, None, 99, ())
    value = struct.pack(">h", 3) + string("consumer") + struct.pack(">ihhqi", 2, -1, -1, 99, 0)
    assert build_group_metadata_value(empty) == value
    assert parse_group_metadata_value(value) == empty


@given(
    st.text(max_size=20),
    st.text(max_size=20),
    st.integers(0, 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.text(max_size=20),
)
def test_what_is_written_is_read(group: str, topic: str, partition: int, offset: int, epoch: int, note: str) -> None:
    assert parse_key(build_offset_commit_key(group, topic, partition)) == (group, topic, partition)
    assert parse_key(build_group_metadata_key(group)) == (group,)
    committed = CommittedOffset(offset, epoch, note, 1)
    assert parse_offset_commit_value(build_offset_commit_value(committed)) == committed


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    for parse in (parse_key, parse_offset_commit_value, parse_group_metadata_value):
        with contextlib.suppress(DecodeError):
            parse(content)

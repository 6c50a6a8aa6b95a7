"""The records of `__consumer_offsets`, byte for byte Kafka's (docs/semantics §11).

The key's first two bytes name the kind of record, the value's its version. Keys must come out the same for the same
thing in every release, or compaction keeps both. All versions are read; written are keys 1 and 2, and values 3, or 1
for an offset with an expiry of its own, because version 3 has no room for one.
"""

from collections.abc import Generator, Iterator
from io import BytesIO
from itertools import islice
from struct import Struct
from typing import Any, Final, NamedTuple

from ottla.protocol.codec import decode, encode
from ottla.protocol.primitives import Buffer, DecodeError
from ottla.protocol.schema import Message, define

_KEY_VERSION_OFFSET: Final = 1
_KEY_VERSION_GROUP: Final = 2
_KEY_VERSIONS_CONSUMER_GROUP: Final = range(3, 9)
_VALUE_VERSION: Final = 3
_VALUE_VERSION_WITH_EXPIRY: Final = 1
_COUNT: Final = Struct(">i")
"""Of an array's elements, in versions that are not flexible."""

NO_TIMESTAMP: Final = -1
LAST_TIMESTAMP: Final = 2**63 - 1

_messages = define(
    """
OffsetCommitKey  key none  versions 0-1  flexible none
  group      string  0+
  topic      string  0+
  partition  int32   0+

OffsetCommitValue  key none  versions 0-4  flexible 4+
  offset            int64   0+
  leader_epoch      int32   3+  = -1
  metadata          string  0+
  commit_timestamp  int64   0+
  expire_timestamp  int64   1   = -1

GroupMetadataKey  key none  versions 2-2  flexible none
  group  string  2

GroupMetadataValue  key none  versions 0-4  flexible 4+
  protocol_type            string  0+
  generation               int32   0+
  protocol                 string  0+  null
  leader                   string  0+  null
  current_state_timestamp  int64   2+  = -1
  members                  []MemberMetadata  0+
    member_id          string  0+
    group_instance_id  string  3+  null = null
    client_id          string  0+
    client_host        string  0+
    rebalance_timeout  int32   1+  = -1
    session_timeout    int32   0+
    subscription       bytes   0+
    assignment         bytes   0+
""",
    __name__,
)
_by_name: Final[dict[str, Any]] = {cls.__name__: cls for cls in _messages}
_offset_key_message: Final = _by_name["OffsetCommitKey"]
_offset_value_message: Final = _by_name["OffsetCommitValue"]
_group_key_message: Final = _by_name["GroupMetadataKey"]
_group_value_message: Final = _by_name["GroupMetadataValue"]
_member_message: Final = _by_name["MemberMetadata"]


class OffsetCommitKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class GroupMetadataKey(NamedTuple):
    group_id: str


class UnreadRecord(NamedTuple):
    """A key that this coordinator passes over, and why."""

    reason: str


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    """-1: expiry is decided by the group's state and the broker's retention."""


class StoredMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: Buffer


class GroupMetadata(NamedTuple):
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader_id: str | None
    state_timestamp_ms: int
    members: tuple[StoredMember, ...]


def parse_key(key: bytes) -> OffsetCommitKey | GroupMetadataKey | UnreadRecord:
    """Raises `DecodeError` on a key of a known version that does not have its layout."""
    version = _version_of(key)
    if version in (0, _KEY_VERSION_OFFSET):
        message = _parse(_offset_key_message, version, key)
        return OffsetCommitKey(message.group, message.topic, message.partition)
    if version == _KEY_VERSION_GROUP:
        return GroupMetadataKey(_parse(_group_key_message, version, key).group)
    if version in _KEY_VERSIONS_CONSUMER_GROUP:
        return UnreadRecord(f"key version {version}: consumer groups of KIP-848 are not supported")
    return UnreadRecord(f"key version {version} is unknown")


def build_offset_commit_key(group_id: str, topic: str, partition: int) -> bytes:
    return _build(_offset_key_message(group=group_id, topic=topic, partition=partition), _KEY_VERSION_OFFSET)


def build_group_metadata_key(group_id: str) -> bytes:
    return _build(_group_key_message(group=group_id), _KEY_VERSION_GROUP)


def parse_offset_commit_value(value: bytes) -> CommittedOffset | None:
    """None when the version is not one of ours. Raises `DecodeError`."""
    message = _parse_known(_offset_value_message, value)
    if message is None:
        return None
    return CommittedOffset(
        offset=message.offset,
        leader_epoch=message.leader_epoch,
        metadata=message.metadata,
        commit_timestamp_ms=message.commit_timestamp,
        expire_timestamp_ms=message.expire_timestamp,
    )


def build_offset_commit_value(committed: CommittedOffset) -> bytes:
    message = _offset_value_message(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
    )
    never_expires = committed.expire_timestamp_ms == NO_TIMESTAMP
    return _build(message, _VALUE_VERSION if never_expires else _VALUE_VERSION_WITH_EXPIRY)


def parse_group_metadata_value(value: bytes) -> GroupMetadata | None:
    """None when the version is not one of ours. Raises `DecodeError`."""
    message = _parse_known(_group_value_message, value)
    if message is None:
        return None
    return GroupMetadata(
        protocol_type=message.protocol_type,
        generation=message.generation,
        protocol_name=message.protocol,
        leader_id=message.leader,
        state_timestamp_ms=message.current_state_timestamp,
        members=tuple(_parse_member(member) for member in message.members),
    )


def _parse_member(member: Any) -> StoredMember:
    # Version 0 has no rebalance timeout.
    rebalance_timeout_ms = member.rebalance_timeout if member.rebalance_timeout >= 0 else member.session_timeout
    return StoredMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout,
        subscription=member.subscription,
        assignment=member.assignment,
    )


def build_group_metadata_value(metadata: GroupMetadata) -> bytes:
    message = _group_value_message(
        protocol_type=metadata.protocol_type,
        generation=metadata.generation,
        protocol=metadata.protocol_name,
        leader=metadata.leader_id,
        current_state_timestamp=metadata.state_timestamp_ms,
        members=[_build_member(member) for member in metadata.members],
    )
    return _build(message, _VALUE_VERSION)


def build_large_group_metadata_value(
    metadata: GroupMetadata, members: Iterator[StoredMember], *, members_at_once: int, bytes_max: int
) -> Generator[None, None, bytes | None]:
    """The value of `metadata`, which has no members, with these; None as soon as it has more than `bytes_max`. Yields
    after each slice of them."""
    head = build_group_metadata_value(metadata)
    # It grows without being copied, and gives its bytes without copying them either.
    value, count = BytesIO(), 0
    size = value.write(head)
    while some := tuple(islice(members, members_at_once)):
        size += value.write(build_group_metadata_value(metadata._replace(members=some))[len(head) :])
        if size > bytes_max:
            return None
        count += len(some)
        yield
    # The members stand at the end, behind their number.
    value.seek(len(head) - _COUNT.size)
    value.write(_COUNT.pack(count))
    return value.getvalue()


def _build_member(member: StoredMember) -> Any:
    return _member_message(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.subscription,
        assignment=member.assignment,
    )


def _version_of(data: bytes) -> int:
    if len(data) < 2:
        raise DecodeError(f"{len(data)} bytes are too few for a version")
    return int.from_bytes(data[:2], "big", signed=True)


def _parse_known(message: Any, value: bytes) -> Any:
    version = _version_of(value)
    first, last = message.VERSIONS
    return _parse(message, version, value) if first <= version <= last else None


def _parse(message: type[Message], version: int, data: bytes) -> Any:
    # Bytes that are left over are let be, as Kafka does.
    return decode(message, version, data, 2)[0]


def _build(message: Message, version: int) -> bytes:
    return version.to_bytes(2, "big") + encode(message, version)

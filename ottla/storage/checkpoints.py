"""The small text files of a data directory, in Kafka's forms: built and parsed here, read and written by their owners.

`parse_*` raise ValueError on anything that was not written by a broker.
"""

import base64
from collections.abc import Iterable, Mapping

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
COMPACTED_RANGES = "ottla-compacted-ranges"

TopicPartition = tuple[str, int]


def build_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """One offset per partition, for the files of a log directory."""
    return build_lines(f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))


def parse_offsets(content: bytes) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for topic, partition, offset in parse_lines(content, columns=3):
        offsets[topic, int(partition)] = int(offset)
    return offsets


def build_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()


def parse_partition_metadata(content: bytes) -> bytes:
    """The topic id."""
    fields = _parse_fields(content, separator=":")
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise ValueError("version 0 and a topic id expected")
    return uuid_from_text(fields["topic_id"])


def build_properties(properties: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in properties.items()).encode()


def parse_properties(content: bytes) -> dict[str, str]:
    """A Java properties file as brokers write it: no escapes, no continued lines."""
    return _parse_fields(content, separator="=")


def uuid_to_text(uuid: bytes) -> str:
    """Kafka's way to print the 16 bytes of an id: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def uuid_from_text(text: str) -> bytes:
    uuid = base64.urlsafe_b64decode(text + "==")
    if len(uuid) != 16:
        raise ValueError(f"an id of {len(uuid)} bytes, 16 expected")
    return uuid


def build_lines(lines: Iterable[str]) -> bytes:
    listed = list(lines)
    return "\n".join(["0", str(len(listed)), *listed, ""]).encode()


def parse_lines(content: bytes, columns: int) -> list[list[str]]:
    lines = content.decode().splitlines()
    if len(lines) < 2 or lines[0] != "0":
        raise ValueError("version 0 and a count expected")
    rows = [line.split() for line in lines[2:]]
    if len(rows) != int(lines[1]) or any(len(row) != columns for row in rows):
        raise ValueError(f"{lines[1]} lines of {columns} columns expected")
    return rows


def _parse_fields(content: bytes, separator: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in content.decode().splitlines():
        if line.strip() and not line.startswith("#"):
            name, found, value = line.partition(separator)
            if not found:
                raise ValueError(f"{line!r} has no {separator!r}")
            fields[name.strip()] = value.strip()
    return fields

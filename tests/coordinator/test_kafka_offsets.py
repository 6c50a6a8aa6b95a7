"""The coordinator takes over a `__consumer_offsets` partition that Apache Kafka 4.1.0 wrote (its README says how).

Kafka 4.1 writes offset values in version 4, this coordinator in version 3, which every Kafka since 2.1 reads.
"""

from pathlib import Path

from ottla.coordinator.records import (
    CommittedOffset,
    GroupMetadataKey,
    OffsetCommitKey,
    build_group_metadata_key,
    build_group_metadata_value,
    build_offset_commit_key,
    build_offset_commit_value,
    parse_group_metadata_value,
    parse_key,
    parse_offset_commit_value,
)
from ottla.protocol.records.batch import iterate_batches
from ottla.protocol.records.record import Record, iterate_records
from tests.coordinator.harness import Batch, Shell

LOG = Path(__file__).parents[1] / "golden" / "kafka_4_1" / "__consumer_offsets-43" / "00000000000000000000.log"
ASSIGNMENT = bytes.fromhex("0000 00000001 0003 666f6f 00000001 00000000 00000000")
NO_ASSIGNMENT = bytes.fromhex("0000 00000000 00000000")


def kafkas_records() -> list[Record]:
    view = memoryview(LOG.read_bytes())
    return [
        record
        for position, header in iterate_batches(view)
        for record in iterate_records(view[position : position + header.size_bytes])
    ]


def taken_over() -> Shell:
    shell = Shell()
    shell.log = [Batch(record.offset, (record,), committed=True) for record in kafkas_records()]
    shell.next_offset = 6
    shell.restart_partition()
    return shell


def test_keys_and_group_values_are_built_as_kafka_wrote_them() -> None:
    """§11.1, §11.3"""
    groups = 0
    for record in kafkas_records():
        assert record.key is not None
        assert record.value is not None
        match parse_key(record.key):
            case GroupMetadataKey(group_id):
                groups += 1
                metadata = parse_group_metadata_value(record.value)
                assert metadata is not None
                assert build_group_metadata_key(group_id) == record.key
                assert build_group_metadata_value(metadata) == record.value
            case OffsetCommitKey(group_id, topic, partition):
                assert build_offset_commit_key(group_id, topic, partition) == record.key
    assert groups == 5


def test_offset_value_of_version_4_is_read() -> None:
    """§11.2"""
    (value,) = [
        record.value for record in kafkas_records() if record.key == build_offset_commit_key("golden", "foo", 0)
    ]
    assert value is not None

    committed = parse_offset_commit_value(value)

    assert committed == CommittedOffset(2, 0, "note", 1_795_176_468_463)
    ours = build_offset_commit_value(committed)
    compact_note, note = b"\x05note", b"\x00\x04note"
    assert value[:2] + value[2:-1].replace(compact_note, note) == b"\x00\x04" + ours[2:]
    assert value[-1:] == b"\x00", "no tagged fields"


def test_generations_are_those_that_kafka_stored() -> None:
    values = [record.value for record in kafkas_records() if record.key == build_group_metadata_key("golden")]
    stored = [parse_group_metadata_value(value) for value in values if value is not None]

    generations = [
        (group.generation, group.protocol_name, [(m.group_instance_id, m.assignment) for m in group.members])
        for group in stored
        if group is not None
    ]

    assert generations == [
        (0, None, []),
        (1, "range", [(None, ASSIGNMENT)]),
        (2, None, []),
        (3, "range", [("seat-1", NO_ASSIGNMENT)]),
        (4, "range", [("seat-1", ASSIGNMENT)]),
    ]


def test_the_group_goes_on_where_kafka_left_it() -> None:
    shell = taken_over()

    assert shell.state("golden") == "Stable"
    offset = shell.fetch("foo", 0, group_id="golden")
    assert (offset.offset, offset.leader_epoch, offset.metadata) == (2, 0, "note")

    member = shell.client("golden-client", group_id="golden", instance_id="seat-1")
    (member_id,) = shell.group("golden").members
    member.member_id, member.generation = member_id, 4
    assert member.heartbeat().name == "NONE"
    assert member.sync().assignment == ASSIGNMENT


def test_the_group_that_kafka_knew_expires_its_member_here() -> None:
    shell = taken_over()

    shell.advance(45_000)

    assert shell.state("golden") == "Empty"
    assert shell.committed("foo", 0, "golden") == 2

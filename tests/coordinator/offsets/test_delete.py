"""More offsets than fit into one batch of the log go all the same (§9.7)."""

import pytest

from ottla.coordinator.events import DeleteGroup, DeleteOffsets, ExpireOffsets, OffsetToCommit, TopicsDeleted
from ottla.coordinator.facts import OffsetsRemoved, StoreFailed
from ottla.coordinator.group_context import GroupConfig
from ottla.coordinator.offsets.delete import BATCH_BYTES
from ottla.coordinator.runtime.effects import Append, Effect
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.record import Record, build_batch
from tests.coordinator.harness import Shell

TOPIC = "t" * 249
PARTITIONS = 2_500


@pytest.fixture
def shell() -> Shell:
    """A simple group with offsets of many partitions of a topic with a long name."""
    shell = Shell(GroupConfig(offsets_retention_minutes=60))
    for first in range(0, PARTITIONS, 500):
        offsets = tuple(OffsetToCommit(TOPIC, partition, 1) for partition in range(first, first + 500))
        shell.commit(1, offsets=offsets)
    return shell


def batch_sizes(effects: list[Effect]) -> list[int]:
    return [
        len(build_batch(Record(key=record.key, value=record.value) for record in effect.records))
        for effect in effects
        if isinstance(effect, Append)
    ]


def removed_by(shell: Shell, how: str) -> list[Effect]:
    match how:
        case "expiry":
            shell.advance(3_600_000)
            return shell.happen(ExpireOffsets())
        case "deletion of the topic":
            return shell.happen(TopicsDeleted((TOPIC,)))
        case "deletion of the group":
            return shell.happen(DeleteGroup(shell.token(), "g"))
        case _:
            return shell.happen(DeleteOffsets(shell.token(), "g", ((TOPIC, tuple(range(PARTITIONS))),)))


@pytest.mark.parametrize("how", ["expiry", "deletion of the topic", "deletion of the group", "request"])
def test_offsets_that_fill_several_batches_go_in_several(shell: Shell, how: str) -> None:
    """G27"""
    sizes = batch_sizes(removed_by(shell, how))

    assert len(sizes) > 1
    assert max(sizes) <= BATCH_BYTES + 100
    assert not shell.partition.shard.durable.offsets


def test_part_that_cannot_be_stored_is_reported_and_retried(shell: Shell) -> None:
    shell.fail_appends = ErrorCode.KAFKA_STORAGE_ERROR
    removed_by(shell, "expiry")
    failures = [fact for _, fact in shell.facts if isinstance(fact, StoreFailed)]
    assert len(failures) > 1
    assert len(shell.partition.shard.durable.offsets["g"]) == PARTITIONS

    shell.fail_appends = None
    removed_by(shell, "expiry")
    assert shell.group() is None


def test_removal_of_many_offsets_appends_one_batch_in_a_slice(shell: Shell) -> None:
    """The event loop serves others in between."""
    request = DeleteOffsets(shell.token(), "g", ((TOPIC, tuple(range(PARTITIONS))),))

    slices = [shell.partition.step(request, shell.now_ms, shell.wall_ms)]
    while shell.partition.rest:
        slices.append(shell.partition.go_on())

    appends = [sum(isinstance(effect, Append) for effect in effects) for effects in slices]
    assert max(appends) == 1
    assert sum(appends) > 10


def test_deposed_coordinator_cannot_say_that_an_offset_is_gone() -> None:
    """Its successor may have one that it lacks: the answer waits for a tombstone, which is never committed."""
    shell = Shell()
    shell.commit(1)
    shell.fail_appends = ErrorCode.NOT_COORDINATOR

    reply = shell.send(DeleteOffsets(shell.token(), "g", (("never-committed", (0,)),)))

    assert reply.error is ErrorCode.NOT_COORDINATOR


def test_deletion_of_what_is_not_there_succeeds_unseen(shell: Shell) -> None:
    reply = shell.send(DeleteOffsets(shell.token(), "g", (("never-committed", (0,)),)))

    assert [partition.error for partition in reply.partitions] == [ErrorCode.NONE]
    assert not [fact for _, fact in shell.facts if isinstance(fact, OffsetsRemoved)]

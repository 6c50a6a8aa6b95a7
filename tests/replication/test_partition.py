"""A partition over a log: §14.6, §15.1, §15.4.3."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import (
    FencedLeaderEpoch,
    KafkaError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from ottla.protocol.records.record import Record, build_batch
from ottla.replication.leading import ACKS_ALL
from ottla.replication.partition import Partition
from ottla.replication.reading import READ_COMMITTED
from ottla.storage.config import LogConfig
from ottla.storage.log_directory import LogDirectory

BATCH = bytes(build_batch([Record(timestamp=1, value=b"a")]))
HERE, THERE = 1, 2


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[LogDirectory]:
    opened = LogDirectory.open(
        tmp_path,
        node_id=HERE,
        cluster_id=None,
        new_id=lambda: str(random.random()),
        config_of=lambda _: LogConfig(),
        now_wall_ms=0,
    )
    yield opened
    opened.close()


def partition(directory: LogDirectory, **config: Any) -> Partition:
    log = directory.create_log("t", 0, b"\1" * 16, LogConfig(**config), now_wall_ms=0)
    return Partition("t", 0, b"\1" * 16, log, local_id=HERE)


def lead(target: Partition, epoch: int = 0, *, leader: int = HERE, isr: tuple[int, ...] = (HERE,)) -> Partition:
    replicas = (HERE, THERE) if THERE in (*isr, leader) else (HERE,)
    target.take_state(leader=leader, leader_epoch=epoch, partition_epoch=epoch, replicas=replicas, isr=isr, now_ms=0)
    return target


def append(target: Partition, acks: int = ACKS_ALL) -> int:
    info = target.append(memoryview(bytearray(BATCH)), acks=acks, wall_ms=0)
    target.log.write_pending(now_wall_ms=0)
    target.maybe_raise_high_watermark(0)
    return info.base_offset


def test_with_one_replica_the_high_watermark_follows_what_is_written(directory: LogDirectory) -> None:
    leader = lead(partition(directory))
    leader.append(memoryview(bytearray(BATCH)), acks=1, wall_ms=0)

    assert not leader.maybe_raise_high_watermark(0), "queued is not written"
    leader.log.write_pending(now_wall_ms=0)
    assert leader.maybe_raise_high_watermark(0)
    assert leader.high_watermark == leader.last_stable_offset == leader.upper_bound(READ_COMMITTED) == 1


def test_acks_all_needs_enough_replicas_in_sync(directory: LogDirectory) -> None:
    """§15.2.2; acks=1 does not."""
    leader = partition(directory, min_insync_replicas=2)
    leader.take_state(leader=HERE, leader_epoch=0, partition_epoch=0, replicas=(HERE, THERE), isr=(HERE,), now_ms=0)

    with pytest.raises(NotEnoughReplicas):
        append(leader)
    assert append(leader, acks=1) == 0


def test_min_insync_replicas_asks_for_no_more_replicas_than_there_are(directory: LogDirectory) -> None:
    """§14.6.2"""
    assert append(lead(partition(directory, min_insync_replicas=2))) == 0


def test_only_the_leader_takes_records(directory: LogDirectory) -> None:
    follower = lead(partition(directory), leader=THERE, isr=(HERE, THERE))

    with pytest.raises(NotLeaderOrFollower):
        append(follower)
    with pytest.raises(NotLeaderOrFollower):
        follower.check_leader()


@pytest.mark.parametrize(("epoch", "error"), [(4, FencedLeaderEpoch), (6, UnknownLeaderEpoch)])
def test_another_leader_epoch_than_the_current_one_is_refused(
    directory: LogDirectory, epoch: int, error: type[KafkaError]
) -> None:
    leader = lead(partition(directory), 5)

    leader.check_leader(5)
    leader.check_leader(-1)
    with pytest.raises(error):
        leader.check_leader(epoch)


def test_an_older_state_is_ignored(directory: LogDirectory) -> None:
    """§14.2.1, I-8"""
    leader = lead(partition(directory), 5)

    lead(leader, 4, leader=THERE, isr=(THERE,))

    assert (leader.leader_id, leader.leader_epoch) == (HERE, 5)


def test_a_new_term_begins_at_the_end_of_the_log(directory: LogDirectory) -> None:
    """§14.2.2, §14.3.3"""
    leader = lead(partition(directory), 1)
    append(leader)
    append(leader)
    lead(leader, 3)
    append(leader)

    assert leader.leader_epoch_start == 2
    assert leader.end_offset_for_epoch(1) == (1, 2)
    assert leader.end_offset_for_epoch(3) == (3, 3)
    assert leader.end_offset_for_epoch(9) == (-1, -1)


def test_a_restored_high_watermark_stays_within_the_log(directory: LogDirectory) -> None:
    """§14.6.5"""
    log = directory.create_log("u", 0, b"\2" * 16, LogConfig(), now_wall_ms=0)

    assert Partition("u", 0, b"\2" * 16, log, local_id=HERE, high_watermark=99).high_watermark == 0


def test_offsets_outside_the_log_cannot_be_read(directory: LogDirectory) -> None:
    leader = lead(partition(directory))
    append(leader)

    leader.check_readable(0)
    leader.check_readable(1)
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRange):
            leader.check_readable(offset)


def test_readers_see_nothing_above_the_high_watermark(directory: LogDirectory) -> None:
    leader = lead(partition(directory))
    append(leader)
    leader.append(memoryview(bytearray(BATCH)), acks=1, wall_ms=0)
    leader.log.write_pending(now_wall_ms=0)

    result = leader.read(0, 1000, isolation_level=0, at_least_one_batch=True)

    assert result.end_offset == 1


def test_the_end_is_unknown_until_the_high_watermark_has_reached_the_term(directory: LogDirectory) -> None:
    """§15.4.3, T-17"""
    leader = lead(partition(directory))
    append(leader)
    leader.check_end_offset_is_known()
    leader.leader_epoch_start = 5

    with pytest.raises(KafkaError, match="not known yet"):
        leader.check_end_offset_is_known()

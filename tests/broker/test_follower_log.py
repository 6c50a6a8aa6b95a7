"""What a follower does to its own log: §14.4.4, §14.5."""

import errno
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.replicas.fetcher_tasks import level_of_truncation
from ottla.broker.replicas.follower_log import perform, restart, truncate
from ottla.protocol.errors import CorruptMessage, KafkaStorageError
from ottla.protocol.records.batch import assign_offset_and_epoch
from ottla.protocol.records.record import Record, build_batch
from ottla.replication.follower_effects import AppendRecords, Effect, LogEffect, RestartLog, Truncate, Truncated
from ottla.replication.partition import Partition
from ottla.storage.leader_epoch_cache import EpochEntry
from ottla.storage.log_config import LogConfig
from tests.fakes.disk import FakeDisk
from tests.replication.support import alone, replica, take
from tests.storage.support import NOW, TOPIC_ID, batch, new_log


def sent(*, records: int) -> bytearray:
    """What another broker wrote as leader of epoch 5."""
    return bytearray(alone(records=records).log.read(0, 1 << 20, upper_bound=records).records)


def do(*effects: LogEffect) -> Exception | None:
    """As fetchers do; returns what is reported of the first effect."""
    reported: list[Exception | None] = []

    def report(effect: LogEffect, error: Exception | None, now_ms: int) -> list[Effect]:
        reported.append(error)
        return []

    assert perform(effects, report, now_ms=0, wall_ms=NOW) == []
    return reported[0]


def append(target: Partition, records: bytearray, leader_start_offset: int = 0) -> Exception | None:
    """As what the leader's response has brought; returns what is reported if it cannot be appended."""
    return do(AppendRecords(target, memoryview(records), target.log.log_end_offset, 0, leader_start_offset))


def follower(*, records: int) -> Partition:
    """It knows none of its records to be committed."""
    made = replica()
    take(made, lead=2)
    assert append(made, sent(records=records)) is None
    return made


def test_records_of_the_leader_are_written_as_they_are() -> None:
    target = follower(records=3)

    assert target.log.read(0, 1 << 20, upper_bound=3).records == sent(records=3)
    assert (target.log.log_end_offset, target.high_watermark) == (3, 0)
    assert target.log.end_offset_for_epoch(5) == (5, 3)
    assert not target.log.has_pending_writes


def test_damaged_batch_keeps_those_before_it_out_too() -> None:
    target = follower(records=0)
    damaged = sent(records=3)
    damaged[-1] ^= 1

    assert isinstance(append(target, damaged), CorruptMessage)
    assert target.log.log_end_offset == 0
    assert append(target, sent(records=3)) is None
    assert target.log.log_end_offset == 3


def test_high_watermark_of_a_follower_stays_in_its_log() -> None:
    """§14.4.4"""
    target = follower(records=3)

    rose = [target.maybe_update_high_watermark(leaders, 0) for leaders in (2, 2, 9, 1)]

    assert rose == [True, False, True, False]
    assert target.high_watermark == 3


def test_records_deleted_by_the_leader_go_if_they_are_committed() -> None:
    """§14.4.4, §15.6.1"""
    target = follower(records=3)

    target.maybe_update_high_watermark(1, 2)
    assert (target.log.log_start_offset, target.high_watermark) == (1, 1)
    target.maybe_update_high_watermark(3, 2)
    assert (target.log.log_start_offset, target.high_watermark) == (2, 3)


@pytest.mark.parametrize(("offset", "high_watermark"), [(2, 2), (1, 1), (0, 0)])
def test_a_truncated_log_takes_the_high_watermark_with_it(offset: int, high_watermark: int) -> None:
    target = follower(records=3)
    target.maybe_update_high_watermark(2, 0)

    truncate(target, offset)

    assert (target.log.log_end_offset, target.high_watermark) == (offset, high_watermark)


def segmented(disk: FakeDisk) -> Partition:
    """A follower with six committed records, each in a segment of its own."""
    made = Partition("t", 0, TOPIC_ID, new_log(disk, LogConfig(segment_bytes=100)), local_id=1)
    take(made, lead=2)
    append(made, sent(records=6))
    made.maybe_update_high_watermark(6, 0)
    return made


def do_truncate(target: Partition, offset: int) -> Exception | None:
    return do(Truncate(target, offset, target.log.log_end_offset, target.high_watermark))


def do_restart(target: Partition, offset: int) -> Exception | None:
    return do(RestartLog(target, offset, target.log.log_end_offset))


@pytest.mark.parametrize("drop", [truncate, do_truncate])
def test_truncation_refused_half_way_lowers_the_high_watermark(drop: Callable[[Partition, int], Any]) -> None:
    """I-6: the segments that went before the disk refused are gone."""
    disk = FakeDisk()
    target = segmented(disk)
    files_of_a_segment = 3
    disk.fail("rename", OSError(errno.EIO, "the disk refuses"), after=files_of_a_segment)

    try:
        error = drop(target, 1)
    except KafkaStorageError as raised:
        error = raised

    assert isinstance(error, KafkaStorageError)
    assert (target.log.log_end_offset, target.high_watermark) == (5, 5)


@pytest.mark.parametrize("drop", [restart, do_restart])
def test_restart_refused_half_way_has_begun_all_the_same(drop: Callable[[Partition, int], Any]) -> None:
    """I-6: opening the log would finish it too."""
    disk = FakeDisk()
    target = segmented(disk)
    disk.fail("rename", OSError(errno.EIO, "the disk refuses"), after=3)

    assert drop(target, 1) is None

    assert (target.log.log_start_offset, target.log.log_end_offset, target.high_watermark) == (1, 1, 1)


def test_leader_after_a_refused_truncation_waits_for_followers() -> None:
    """§15.2.3: no follower has fetched what it appends."""
    disk = FakeDisk()
    target = segmented(disk)
    disk.fail("rename", OSError(errno.EIO, "the disk refuses"), after=6)
    do_truncate(target, 1)
    take(target, epoch=9, version=2)

    info = target.append(batch("x"), -1, NOW)
    target.log.write_pending(now_wall_ms=NOW)
    target.written(0)

    assert info.base_offset == 4
    assert target.acknowledgement(info.last_offset, 9) is None


def test_restarted_log_knows_no_epoch_of_its_former_records() -> None:
    """§14.5.4: the leader's log begins above them."""
    target = follower(records=3)

    restart(target, 7)

    assert (target.log.log_start_offset, target.log.log_end_offset, target.high_watermark) == (7, 7, 7)
    assert target.log.end_offset_for_epoch(5) == (-1, -1)


def test_empty_log_accepts_batch_that_begins_before_its_start() -> None:
    """§14.5.4: DeleteRecords has left the leader a log start within a batch."""
    target = follower(records=0)
    restart(target, 2)
    batch = build_batch([Record(timestamp=NOW, key=None, value=b"v") for _ in range(4)])
    assign_offset_and_epoch(batch, 0, 0, 5)

    append(target, batch)

    assert (target.log.log_start_offset, target.log.log_end_offset, target.high_watermark) == (2, 4, 2)
    assert target.log.read(2, 1 << 20, upper_bound=4).records == batch
    assert target.log.epochs.entries == (EpochEntry(5, 2),)


def test_log_that_the_leader_has_deleted_begins_within_a_batch() -> None:
    """Records of a leader that was replaced end where the log of its successor begins, within a batch: the successor
    has forgotten the epoch before its own, and cannot say where the two logs part (§14.5.4)."""
    target = follower(records=3)
    batch = build_batch([Record(timestamp=NOW, key=None, value=b"v") for _ in range(4)])
    assign_offset_and_epoch(batch, 0, 2, 6)

    assert isinstance(append(target, batch, leader_start_offset=2), CorruptMessage)
    assert append(target, batch, leader_start_offset=3) is None

    assert (target.log.log_start_offset, target.log.log_end_offset, target.high_watermark) == (3, 6, 3)
    assert target.log.read(3, 1 << 20, upper_bound=6).records == batch
    assert target.log.epochs.entries == (EpochEntry(6, 3),)


def test_damaged_batch_before_the_start_leaves_log_unchanged() -> None:
    target = follower(records=0)
    restart(target, 2)
    batch = build_batch([Record(timestamp=NOW, key=None, value=b"v") for _ in range(4)])
    batch[-1] ^= 1

    assert isinstance(append(target, batch), CorruptMessage)
    assert (target.log.log_start_offset, target.log.log_end_offset, target.high_watermark) == (2, 2, 2)


@pytest.mark.parametrize(
    ("policy", "high_watermark", "level"),
    [("delete", 0, "info"), ("delete", 3, "error"), ("compact", 0, "info"), ("compact", 3, "warning")],
)
def test_truncation_of_committed_records_is_said_loudly(policy: str, high_watermark: int, level: str) -> None:
    """Less so where later records of their keys may have replaced them."""
    target = Partition("t", 0, TOPIC_ID, new_log(FakeDisk(), LogConfig(cleanup_policy=frozenset({policy}))), local_id=1)
    take(target, lead=2)
    assert append(target, sent(records=2)) is None

    assert level_of_truncation(Truncated(target, 3, high_watermark)) == level


@pytest.mark.parametrize("is_late", [False, True])
def test_bug_in_one_log_keeps_no_other_effect_back(monkeypatch: pytest.MonkeyPatch, is_late: bool) -> None:
    """Of one response; also if it is the report that fails."""
    broken, sound = follower(records=3), follower(records=3)
    reported: list[tuple[Partition, Exception | None]] = []
    bug = AssertionError("a bug")

    def fail(*_: Any) -> None:
        raise bug

    def report(effect: LogEffect, error: Exception | None, now_ms: int) -> list[Effect]:
        if is_late and effect.partition is broken and error is None:
            fail()
        reported.append((effect.partition, error))
        return []

    if not is_late:
        monkeypatch.setattr(broken.log, "truncate_to", fail)
    perform([Truncate(each, 1, 3, 0) for each in (broken, sound)], report, now_ms=0, wall_ms=NOW)

    assert reported == [(broken, bug), (sound, None)]
    assert sound.log.log_end_offset == 1

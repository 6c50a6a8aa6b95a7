"""Logs made of files that were looked at before: the same as those that recovery makes of these files."""

from pathlib import Path
from typing import Any

import pytest

from ottla.storage.found_log import FoundLog
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.recovery import LogHistory, find_log
from tests.fakes.disk import FakeDisk
from tests.storage.support import NOW, ROOT, TOPIC_ID, append, batch, check_indexes, new_log, read_all
from tests.storage.transactional import ABORT, COMMIT, end, write

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=60)
CLOSED = LogHistory(was_closed_cleanly=True, log_start_offset=1, high_watermark=3)
NEW_TOPIC_ID = bytes(15) + b"2"


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


def closed_log(disk: FakeDisk) -> Log:
    """Several segments and leader epochs, aborted transactions, an idempotent producer, and an open transaction."""
    log = new_log(disk, CONFIG)
    append(log, batch("a", "b", producer_id=9, producer_epoch=0, base_sequence=0))
    for commit in (ABORT, COMMIT, ABORT):
        write(log, "c", producer=7)
        end(log, producer=7, commit=commit)
    for epoch in range(1, 4):
        append(log, batch(*"de", timestamp=NOW + epoch), batch("f", timestamp=NOW - epoch), leader_epoch=epoch)
    write(log, "open", producer=8, leader_epoch=3)
    log.close()
    assert len(log.segments) > 2
    return log


def copy_files(disk: FakeDisk, source: Path, name: str) -> Path:
    target = ROOT / name
    disk.make_directory(target)
    for each in disk.list_directory(source):
        file = disk.open(target / each)
        file.writev([disk.read_bytes(source / each)])
        file.close()
    return target


def found_in(disk: FakeDisk, directory: Path) -> FoundLog:
    return find_log(disk, directory, config=CONFIG, history=CLOSED, notices=pytest.fail, topic_id=TOPIC_ID)


def made_of(found: FoundLog, disk: FakeDisk, directory: Path) -> Log:
    return found.log(disk, directory, "t", 0, CONFIG, NOW)


def facts(log: Log) -> dict[str, Any]:
    check_indexes(log)
    return {
        "offsets": (log.log_start_offset, log.log_end_offset, log.restored_high_watermark, log.flushed_offset),
        "records": read_all(log),
        "epochs": log.epochs.entries,
        "producers": dict(log.producers.states),
        "stable": log.last_stable_offset(log.log_end_offset),
        "aborted": log.aborted_transactions(log.log_start_offset, log.log_end_offset),
        "gaps": (log.gaps.until, log.gaps.is_marked),
        "segments": [
            (
                each.base_offset,
                each.size,
                each.end_position,
                each.max_timestamp,
                each.max_timestamp_offset,
                each.first_timestamp,
                each.is_flushed,
                each.offset_index.to_bytes(),
                each.time_index.to_bytes(),
                list(each.aborted),
            )
            for each in log.segments
        ],
    }


def test_log_of_known_files_is_as_recovered(disk: FakeDisk) -> None:
    source = closed_log(disk)
    first, second = (copy_files(disk, source.directory, name) for name in ("u-0", "v-0"))
    found = found_in(disk, first)
    known = found.in_directory(disk, first, TOPIC_ID)

    recovered = made_of(found, disk, first)
    made = made_of(known.in_directory(disk, second, NEW_TOPIC_ID), disk, second)

    assert facts(made) == facts(recovered)
    assert (recovered.topic_id, made.topic_id) == (TOPIC_ID, NEW_TOPIC_ID)
    assert [each.path(".log").parent for each in made.segments] == [second] * len(made.segments)


def test_log_that_goes_on_leaves_what_is_known_alone(disk: FakeDisk) -> None:
    source = closed_log(disk)
    directories = [copy_files(disk, source.directory, name) for name in ("u-0", "v-0", "w-0")]
    known = found_in(disk, directories[0]).in_directory(disk, directories[0], TOPIC_ID)
    expected = facts(made_of(found_in(disk, directories[0]), disk, directories[0]))

    appended, cut = (made_of(known.in_directory(disk, each, TOPIC_ID), disk, each) for each in directories[:2])
    end(appended, producer=8, commit=ABORT)
    append(appended, *(batch("later", timestamp=NOW + 9) for _ in range(9)), leader_epoch=9)
    cut.truncate_to(2)

    assert facts(made_of(known.in_directory(disk, directories[2], TOPIC_ID), disk, directories[2])) == expected


def test_log_of_known_files_goes_on_where_they_end(disk: FakeDisk) -> None:
    source = closed_log(disk)
    directory = copy_files(disk, source.directory, "u-0")
    known = found_in(disk, source.directory).in_directory(disk, source.directory, TOPIC_ID)
    before = disk.read_bytes(source.segments.active.path(".log"))

    log = made_of(known.in_directory(disk, directory, TOPIC_ID), disk, directory)
    append(log, batch("later"), leader_epoch=9)

    assert read_all(log)[-1] == (source.log_end_offset, b"later")
    assert disk.read_bytes(source.segments.active.path(".log")) == before
    log.close()
    assert facts(made_of(found_in(disk, directory), disk, directory))["records"] == read_all(log)

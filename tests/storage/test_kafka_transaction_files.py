"""Apache Kafka reads what this log writes of transactions: `.txnindex` and `.snapshot` files."""

import re
from pathlib import Path

import pytest

from ottla.storage.log_config import LogConfig
from tests.java_tools import run_tool
from tests.storage.support import NOW, TOPIC_ID
from tests.storage.test_kafka_files import DUMP_LOG, open_copy
from tests.storage.transactional import ABORT, COMMIT, end, write

COORDINATOR_EPOCH = 5


def with_transactions(path: Path) -> Path:
    """Two segments: of producers that have committed and aborted, one of them by a marker of the next epoch, of one
    whose transaction goes on, and of one that has written nothing yet when an abort reaches it."""
    directory = open_copy(path)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    write(log, "a", "b", producer=7)
    write(log, "c", producer=8, epoch=4)
    write(log, "d", producer=9, epoch=2)
    end(log, producer=8, epoch=5, commit=ABORT, coordinator_epoch=COORDINATOR_EPOCH)
    end(log, producer=7, commit=ABORT, coordinator_epoch=COORDINATOR_EPOCH)
    log.roll()
    end(log, producer=9, epoch=2, commit=COMMIT, coordinator_epoch=COORDINATOR_EPOCH)
    write(log, "alone", producer=7)
    end(log, producer=7, commit=ABORT, coordinator_epoch=COORDINATOR_EPOCH)
    write(log, "e", producer=7, now=NOW + 1)
    write(log, "f", "g", "h", producer=10, epoch=1, now=NOW + 2)
    end(log, producer=11, commit=ABORT, coordinator_epoch=COORDINATOR_EPOCH + 1)
    end(log, producer=7, commit=ABORT, coordinator_epoch=COORDINATOR_EPOCH + 1, now=NOW + 3)
    directory.close()
    return log.directory


def dumped(path: Path) -> list[dict[str, str]]:
    """The entries that Kafka finds in a file, without what it says of none."""
    lines = run_tool(DUMP_LOG, "--files", path).splitlines()
    entries = [dict(re.findall(r"(\w+): (\S+)", line)) for line in lines if "producerId: " in line]
    return [{name: value for name, value in each.items() if value != "OptionalLong.empty"} for each in entries]


def aborted(producer_id: int, first_offset: int, last_offset: int, last_stable_offset: int) -> dict[str, str]:
    return texts(
        version=0,
        producerId=producer_id,
        firstOffset=first_offset,
        lastOffset=last_offset,
        lastStableOffset=last_stable_offset,
    )


def producer(
    producer_id: int, epoch: int, coordinator_epoch: int, last_timestamp: int, **more: object
) -> dict[str, str]:
    return texts(
        producerId=producer_id,
        producerEpoch=epoch,
        coordinatorEpoch=coordinator_epoch,
        lastTimestamp=last_timestamp,
        **more,
    )


def last_batch(last_sequence: int, last_offset: int, timestamp: int) -> dict[str, int]:
    """Of one that began with sequence 0; the timestamp is that of the producer's last batch or marker."""
    return {
        "firstSequence": 0,
        "lastSequence": last_sequence,
        "lastOffset": last_offset,
        "offsetDelta": last_sequence,
        "timestamp": timestamp,
    }


def texts(**fields: object) -> dict[str, str]:
    return {name: str(value) for name, value in fields.items()}


@pytest.mark.java
def test_dump_log_reads_our_transaction_indexes(tmp_path: Path) -> None:
    directory = with_transactions(tmp_path / "data")

    first, second = sorted(directory.glob("*.txnindex"))

    assert dumped(first) == [aborted(8, 2, 4, 0), aborted(7, 0, 5, 3)]
    assert dumped(second) == [aborted(7, 7, 8, 9), aborted(7, 9, 14, 10)]


@pytest.mark.java
def test_dump_log_reads_our_snapshots_of_transactions(tmp_path: Path) -> None:
    directory = with_transactions(tmp_path / "data")

    at_roll, at_end = sorted(directory.glob("*.snapshot"))

    open_at = "OptionalLong[{}]".format
    assert dumped(at_roll) == [
        producer(7, 0, COORDINATOR_EPOCH, NOW, **last_batch(1, 1, NOW)),
        producer(8, 5, COORDINATOR_EPOCH, NOW),
        producer(9, 2, -1, NOW, currentTxnFirstOffset=open_at(3), **last_batch(0, 3, NOW)),
    ]
    assert dumped(at_end) == [
        producer(7, 0, COORDINATOR_EPOCH + 1, NOW + 3, **last_batch(0, 9, NOW + 3)),
        producer(8, 5, COORDINATOR_EPOCH, NOW),
        producer(9, 2, COORDINATOR_EPOCH, NOW, **last_batch(0, 3, NOW)),
        producer(10, 1, -1, NOW + 2, currentTxnFirstOffset=open_at(10), **last_batch(2, 12, NOW + 2)),
        producer(11, 0, COORDINATOR_EPOCH + 1, NOW),
    ]

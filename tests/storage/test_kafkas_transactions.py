"""This log takes on what Apache Kafka 4.1 wrote of transactions, against what Kafka itself said of them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ottla.storage.checkpoints import RECOVERY_POINTS
from ottla.storage.log import Log
from ottla.storage.log_directory import CLEAN_SHUTDOWN_FILE, LogDirectory, partition_of
from ottla.storage.producer_snapshot import ENTRY, decode_snapshot
from ottla.storage.producer_state import ProducerStateManager
from ottla.storage.segment import SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX
from tests.storage.support import NOW, check_indexes
from tests.storage.test_kafka_files import open_copy

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka_4_1_transactions"
SAID: dict[str, Any] = json.loads((GOLDEN / "answers.json").read_text())["logs"]
SNAPSHOTS = sorted(path.relative_to(GOLDEN) for path in GOLDEN.glob(f"*/*{SNAPSHOT_SUFFIX}"))
INDEXES = sorted(path.relative_to(GOLDEN) for path in GOLDEN.glob(f"*/*{TRANSACTION_INDEX_SUFFIX}"))
# What a broker writes at a stop and needs no more after a crash, and what it can make again.
MADE_AGAIN = (f"*{SNAPSHOT_SUFFIX}", f"*{TRANSACTION_INDEX_SUFFIX}", CLEAN_SHUTDOWN_FILE, RECOVERY_POINTS)


def kafkas(path: Path, *, without: tuple[str, ...] = ()) -> LogDirectory:
    shutil.copytree(GOLDEN, path, ignore=shutil.ignore_patterns("README.md", "answers.json", *without))
    return open_copy(path)


@pytest.fixture(
    scope="module",
    params=[(), (CLEAN_SHUTDOWN_FILE,), MADE_AGAIN],
    ids=["as stopped", "as killed", "records alone"],
)
def directory(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> LogDirectory:
    return kafkas(tmp_path_factory.mktemp("kafkas") / "data", without=request.param)


def log_of(directory: LogDirectory, name: str) -> Log:
    key = partition_of(name)
    assert key is not None
    return directory.logs[key]


@pytest.mark.parametrize("name", SAID)
def test_producers_and_stable_offset_are_as_kafka_said(directory: LogDirectory, name: str) -> None:
    said, log = SAID[name], log_of(directory, name)

    # Kafka names the offset of the batch where one was cut by DeleteRecords, of which no reader sees the beginning.
    assert log.last_stable_offset(log.log_end_offset) == max(said["last_stable_offset"], said["log_start_offset"])
    assert (log.log_start_offset, log.log_end_offset) == (said["log_start_offset"], said["high_watermark"])
    assert described(log) == said["producers"]
    assert dict(log.producers.open_transactions) == {each[0]: each[-1] for each in said["producers"] if each[-1] >= 0}
    check_indexes(log)


def described(log: Log) -> list[list[int]]:
    """As DescribeProducers says it."""
    return sorted(
        [
            producer_id,
            state.epoch,
            state.batches[-1].last_sequence if state.batches else -1,
            state.last_timestamp,
            state.coordinator_epoch,
            state.transaction_first_offset,
        ]
        for producer_id, state in log.producers.states.items()
    )


@pytest.mark.parametrize("name", SAID)
def test_reads_name_the_same_aborted_transactions(directory: LogDirectory, name: str) -> None:
    log = log_of(directory, name)
    reads = SAID[name]["reads_of_a_batch"] + SAID[name]["reads_of_a_segment"]

    found = [
        [start, end, sorted([each.producer_id, each.first_offset] for each in log.aborted_transactions(start, end))]
        for start, end, _ in reads
        if start < end
    ]

    assert found == [read for read in reads if read[0] < read[1]]


@pytest.mark.parametrize("closes", [False, True], ids=["killed", "closed"])
def test_lost_transaction_indexes_are_made_as_kafka_made_them(tmp_path: Path, closes: bool) -> None:
    path = tmp_path / "data"
    directory = kafkas(path, without=MADE_AGAIN)
    directory.close(clean=closes)

    found = {index: (path / index).read_bytes() for index in INDEXES}

    assert found == {index: (GOLDEN / index).read_bytes() for index in INDEXES}
    others = set(path.glob(f"*/*{TRANSACTION_INDEX_SUFFIX}")) - {path / index for index in INDEXES}
    assert [index for index in others if index.read_bytes()] == []
    assert len({index.parent for index in INDEXES}) < len(INDEXES)


@pytest.mark.parametrize("snapshot", SNAPSHOTS, ids=str)
def test_lost_snapshots_have_what_kafka_knew_there(tmp_path: Path, snapshot: Path) -> None:
    path, name = tmp_path / "data", snapshot.parent.name
    directory = kafkas(
        path, without=(*MADE_AGAIN, *(each.parent.name for each in SNAPSHOTS if each.parent.name != name))
    )
    log = log_of(directory, name)
    log.truncate_to(int(snapshot.name.removesuffix(SNAPSHOT_SUFFIX)))
    directory.close()

    assert entries((path / snapshot).read_bytes()) == entries((GOLDEN / snapshot).read_bytes())


@pytest.mark.parametrize("snapshot", SNAPSHOTS, ids=str)
def test_snapshot_that_was_loaded_is_written_the_same(snapshot: Path) -> None:
    content = (GOLDEN / snapshot).read_bytes()
    producers = ProducerStateManager()

    producers.load(content, NOW, 0)

    assert entries(producers.snapshot_bytes()) == entries(content)


def entries(snapshot: bytes) -> list[tuple[int, ...]]:
    """By producer id: Kafka writes them in the order of a hash table."""
    return sorted(ENTRY.iter_unpack(decode_snapshot(snapshot)))

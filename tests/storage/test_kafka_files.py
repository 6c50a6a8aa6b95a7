"""Apache Kafka reads what this log writes, and the other way round."""

import shutil
from pathlib import Path

import pytest

from ottla.protocol.records.compression import Codec
from ottla.storage import checkpoints
from ottla.storage.compaction import compact, plan_compaction
from ottla.storage.indexes import OffsetIndex, TimeIndex
from ottla.storage.leader_epoch_cache import EpochEntry, build_epochs
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_directory import LogDirectory
from tests.java_tools import run_tool
from tests.storage.support import NOW, TOPIC_ID, append, apply_compaction, batch, check_indexes, keyed, records_in

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka_4_1"
DUMP_LOG = "kafka.tools.DumpLogSegments"
CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=300, cleanup_policy=frozenset({"compact"}))


def open_copy(path: Path, config: LogConfig | None = None) -> LogDirectory:
    return LogDirectory.open(
        path,
        node_id=1,
        cluster_id=None,
        new_id=lambda: checkpoints.uuid_to_text(TOPIC_ID),
        config_of=lambda _: config or LogConfig(),
        now_wall_ms=NOW,
        notices=lambda notice: pytest.fail(notice),
    )


@pytest.mark.parametrize("was_closed_cleanly", [True, False])
def test_a_data_directory_of_kafka_is_opened_as_it_is(tmp_path: Path, was_closed_cleanly: bool) -> None:
    path = tmp_path / "data"
    shutil.copytree(GOLDEN, path, ignore=shutil.ignore_patterns("README.md"))
    if was_closed_cleanly:
        (path / ".kafka_cleanshutdown").write_text("")

    directory = open_copy(path)

    assert directory.meta_properties.cluster_id == "jaYqGJKLSRm1itpd7nYU8w"
    log = directory.logs["idem", 0]
    assert (log.log_end_offset, log.epochs.entries, len(log.producers)) == (500, ((0, 0),), 5)
    assert log.topic_id == checkpoints.uuid_from_text("3n1st1zxTvaVM_XYJQTFFQ")
    result = log.read(0, 1 << 20, upper_bound=500)
    assert [record.offset for record in records_in(result.records)] == list(range(500))
    found = log.offset_for_timestamp(1_700_000_000_000 + 50_000, 500)
    assert found is not None
    assert found.timestamp == 1_700_000_000_000 + 50_000
    check_indexes(log)
    assert directory.logs["__consumer_offsets", 43].log_end_offset == 6
    directory.close()


def test_files_that_kafka_wrote_are_written_the_same() -> None:
    log = GOLDEN / "idem-0"
    size = (log / "00000000000000000000.log").stat().st_size
    index = (log / "00000000000000000000.index").read_bytes()
    times = (log / "00000000000000000000.timeindex").read_bytes()

    offsets, timestamps = OffsetIndex.from_bytes(index, size), TimeIndex.from_bytes(times)
    assert offsets is not None
    assert timestamps is not None
    assert (offsets.to_bytes(), timestamps.to_bytes()) == (index, times)
    epochs = (log / "leader-epoch-checkpoint").read_bytes()
    assert build_epochs([EpochEntry(0, 0)]) == epochs
    metadata = (log / "partition.metadata").read_bytes()
    assert checkpoints.build_partition_metadata(checkpoints.parse_partition_metadata(metadata)) == metadata
    recovery_points = (GOLDEN / "recovery-point-offset-checkpoint").read_bytes()
    offsets_of = checkpoints.parse_offsets(recovery_points)
    assert sorted(checkpoints.build_offsets(offsets_of).splitlines()) == sorted(recovery_points.splitlines())


def test_the_index_of_the_same_batches_is_the_one_kafka_made(tmp_path: Path) -> None:
    path = tmp_path / "data"
    shutil.copytree(GOLDEN, path, ignore=shutil.ignore_patterns("README.md", "*.index", "*.timeindex"))
    directory = LogDirectory.open(
        path, node_id=1, cluster_id=None, new_id=lambda: "", config_of=lambda _: LogConfig(), now_wall_ms=NOW
    )
    directory.close()

    for name in ("00000000000000000000.index", "00000000000000000000.timeindex"):
        assert (path / "idem-0" / name).read_bytes() == (GOLDEN / "idem-0" / name).read_bytes()


def lived_in(path: Path) -> Log:
    """All codecs, several segments and epochs, producers, a compaction with tombstones, a clean close."""
    directory = open_copy(path, CONFIG)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, now_wall_ms=NOW)
    for n in range(120):
        producer = {"producer_id": n % 3, "producer_epoch": 0, "base_sequence": n // 3 * 2}
        pairs = ((f"key {n % 11}", None if n % 11 == 5 else f"value {n} " * 5), (f"other {n % 7}", "x"))
        append(log, keyed(*pairs, timestamp=NOW + n % 50, codec=n % 5, **producer), leader_epoch=n // 40)
    plan = plan_compaction(log, now_wall_ms=NOW + 1000, upper_bound=log.log_end_offset)
    assert plan is not None
    assert apply_compaction(log, compact(plan), now_wall_ms=NOW + 1000)
    append(log, *[batch("last", key="k", timestamp=NOW + n, codec=Codec.NONE) for n in range(30)], leader_epoch=3)
    directory.close()
    due = directory.take_due_deletions(NOW + 10**9)
    assert due is not None
    due.run()
    return log


@pytest.mark.java
def test_dump_log_finds_nothing_wrong_with_our_files(tmp_path: Path) -> None:
    lived_in(tmp_path / "data")
    directory = tmp_path / "data" / "t-0"
    files = ",".join(
        str(path) for path in sorted(directory.iterdir()) if path.suffix in (".log", ".index", ".timeindex")
    )
    snapshots = ",".join(str(path) for path in directory.glob("*.snapshot"))

    printed = run_tool(DUMP_LOG, "--deep-iteration", "--print-data-log", "--files", f"{files},{snapshots}")
    checked = run_tool(DUMP_LOG, "--index-sanity-check", "--files", files)

    assert printed.count("isvalid: true") > 30
    assert "deleteHorizonMs: OptionalLong[" in printed
    assert "producerId: 2 producerEpoch: 0" in printed
    for complaint in ("isvalid: false", "Mismatch", "mismatch", "Found", "Could not", "Invalid", "out of order"):
        assert complaint not in printed + checked.replace("passed sanity check", "")
    indexes = [name for name in files.split(",") if name.endswith("index")]
    assert checked.count("passed sanity check") + checked.count("is empty") == len(indexes)

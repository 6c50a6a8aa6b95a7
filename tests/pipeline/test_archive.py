"""Topics to a table: every record once, as it was, whatever happens to the job."""

import json
import os
import random
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, TypeAlias

import deltalake
import pytest

from ottla.pipeline import archive, replay
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.jobs.job import follow
from tests.cluster_processes import wait_for
from tests.pipeline import topics
from tests.pipeline.jobs import failed_job, running_job
from tests.pipeline.topics import make_topic, produce
from tests.served import ServedBroker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
STAGES = ("begun", "in files", "in the table")
MORE_THAN_ENOUGH = 6000
Row: TypeAlias = tuple[str, int, int, bytes]
"""Topic, partition, offset and value."""


def archive_once(spark: Any, broker: ServedBroker, names: list[str], table: Path, schema: str | None = None) -> None:
    records = archive.read_topics(spark, broker.bootstrap, names, {})
    rows = archive.archived(records, schema)
    follow(lambda: archive.write_table(rows, str(table), f"{table}/_checkpoint", once=True, interval_s=1))


def rows_seen_by_spark(spark: Any, table: Path) -> list[Row]:
    rows = spark.read.format("delta").load(str(table)).select("topic", "partition", "offset", "value").collect()
    return sorted((row.topic, row.partition, row.offset, bytes(row.value)) for row in rows)


def rows_seen_without_spark(table: Path) -> list[Row]:
    query = deltalake.QueryBuilder().register("kept", deltalake.DeltaTable(str(table)))
    columns = query.execute('SELECT topic, partition, "offset", value FROM kept').read_all()
    return sorted(zip(*(columns[name].to_pylist() for name in ("topic", "partition", "offset", "value")), strict=True))


def test_a_record_is_kept_as_it_was(spark: Any, broker: ServedBroker, tmp_path: Path) -> None:
    topic = make_topic(broker)
    headers = [("a", b"1"), ("n", None)]
    produce(broker, topic, ["v"], key="k", partition=1, timestamp=1_700_000_000_123, headers=headers)
    archive_once(spark, broker, [topic], tmp_path / "table")

    (row,) = spark.read.format("delta").load(str(tmp_path / "table")).collect()
    assert tuple(row.asDict()) == archive.COLUMNS
    assert (bytes(row.key), bytes(row.value), row.topic, row.partition, row.offset) == (b"k", b"v", topic, 1, 0)
    assert [(h.key, h.value and bytes(h.value)) for h in row.headers] == headers
    assert round(row.timestamp.timestamp() * 1000) == 1_700_000_000_123


def test_several_topics_and_runs_one_after_the_other(spark: Any, broker: ServedBroker, tmp_path: Path) -> None:
    first, second = make_topic(broker, 1), make_topic(broker, 1)
    for count in (3, 4):
        produce(broker, first, map(str, range(count)))
        produce(broker, second, map(str, range(count)))
        archive_once(spark, broker, [first, second], tmp_path / "table")

    values = [b"0", b"1", b"2", b"0", b"1", b"2", b"3"]
    expected = [(topic, 0, offset, value) for topic in sorted([first, second]) for offset, value in enumerate(values)]
    assert rows_seen_by_spark(spark, tmp_path / "table") == expected
    assert rows_seen_without_spark(tmp_path / "table") == expected


def test_json_values_under_a_schema(spark: Any, broker: ServedBroker, tmp_path: Path) -> None:
    topic = make_topic(broker, 1)
    produce(broker, topic, [json.dumps({"id": 7, "name": "x", "more": 1}), "no json"])
    archive_once(spark, broker, [topic], tmp_path / "table", "id INT, name STRING")

    rows = spark.read.format("delta").load(str(tmp_path / "table")).orderBy("offset").collect()
    assert rows[0].json.asDict() == {"id": 7, "name": "x"}
    assert rows[1].json is None or rows[1].json.id is None


@pytest.mark.parametrize("schema", ["id INTT", "INT", "id:"])
def test_what_is_no_schema_is_refused(spark: Any, schema: str) -> None:
    records = spark.createDataFrame([], ", ".join(f"{name} STRING" for name in archive.COLUMNS))
    with pytest.raises(PipelineError, match=f"{schema} is no schema as Spark writes it"):
        archive.archived(records, schema)


def test_a_checkpoint_of_other_topics_is_refused(spark: Any, broker: ServedBroker, tmp_path: Path) -> None:
    topic = make_topic(broker, 1)
    produce(broker, topic, ["x"])
    archive_once(spark, broker, [topic], tmp_path / "table")
    table, checkpoint = f"{tmp_path}/table", f"{tmp_path}/table/_checkpoint"

    archive.check_checkpoint(spark, checkpoint, [topic, "another"], table)
    archive.check_checkpoint(spark, f"{tmp_path}/none", ["another"], table)
    with pytest.raises(PipelineError, match=f"belongs to a query over {topic}: give another --checkpoint"):
        archive.check_checkpoint(spark, checkpoint, ["another"], table)


def test_a_checkpoint_of_another_table_is_refused(spark: Any, broker: ServedBroker, tmp_path: Path) -> None:
    """The other one would silently lack what the query has put into the first."""
    topic = make_topic(broker, 1)
    produce(broker, topic, ["x"])
    for name in ("one", "other"):
        archive_once(spark, broker, [topic], tmp_path / name)
    checkpoint = f"{tmp_path}/one/_checkpoint"

    for table in ("other", "absent"):
        with pytest.raises(PipelineError, match=f"belongs to a query into another table than {tmp_path}/{table}:"):
            archive.check_checkpoint(spark, checkpoint, [topic], f"{tmp_path}/{table}")


def test_checkpoint_of_an_aborted_query_is_accepted(spark: Any, broker: ServedBroker, tmp_path: Path) -> None:
    topic = make_topic(broker, 1)
    produce(broker, topic, ["x"])
    archive_once(spark, broker, [topic], tmp_path / "table")
    shutil.rmtree(tmp_path / "table" / "_checkpoint" / "commits")

    archive.check_checkpoint(spark, f"{tmp_path}/table/_checkpoint", [topic], f"{tmp_path}/absent")


# Replay


def archived_topic(spark: Any, broker: ServedBroker, table: Path) -> str:
    topic = make_topic(broker)
    for number in range(60):
        produce(
            broker, topic, [f"v{number}"], key=f"k{number}", partition=number % 3,
            timestamp=1_700_000_000_000 + number, headers=[("n", str(number).encode())],
        )  # fmt: skip
    archive_once(spark, broker, [topic], table)
    return topic


def facts_of(record: Any) -> tuple[Any, ...]:
    return record.partition(), record.key(), record.value(), record.headers(), record.timestamp()


def test_a_replay_restores_everything_a_record_had(spark: Any, broker: ServedBroker, tmp_path: Path) -> None:
    source, target = archived_topic(spark, broker, tmp_path / "table"), make_topic(broker)
    rows = spark.read.format("delta").load(str(tmp_path / "table"))

    selected = replay.select_range(rows, source, replay.Range())
    assert replay.send(selected, broker.bootstrap, target, keep_partitions=True) == 60

    before, after = topics.consume_all(broker, source), topics.consume_all(broker, target)
    assert [facts_of(record) for record in after] == [facts_of(record) for record in before]


def test_a_replay_of_a_range(spark: Any, broker: ServedBroker, tmp_path: Path) -> None:
    source = archived_topic(spark, broker, tmp_path / "table")
    rows = spark.read.format("delta").load(str(tmp_path / "table"))

    def selected(**bounds: int) -> list[int]:
        chosen = replay.select_range(rows, source, replay.Range(**bounds)).collect()
        return sorted(row.timestamp_ms - 1_700_000_000_000 for row in chosen)

    assert selected(since_ms=1_700_000_000_010, until_ms=1_700_000_000_013) == [10, 11, 12]
    assert selected(first_offset=18, end_offset=19) == [54, 55, 56]
    assert replay.select_range(rows, "another", replay.Range()).count() == 0


def test_a_replay_to_too_few_partitions_is_refused(spark: Any, broker: ServedBroker, tmp_path: Path) -> None:
    source = archived_topic(spark, broker, tmp_path / "table")
    rows = spark.read.format("delta").load(str(tmp_path / "table"))
    selected = replay.select_range(rows, source, replay.Range())
    replay.check_partitions(selected, "target", 3)
    with pytest.raises(PipelineError, match="the records come from partition 2 and target has 2 partitions"):
        replay.check_partitions(selected, "target", 2)


# The jobs as processes


class Batch:
    """How far the batch of a running archive is. It is in the checkpoint's `offsets` when it begins, its rows are in
    files before the table's log names them, and it is in `commits` when it is over."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._rows, self._version = self._look()

    def _look(self) -> tuple[int, int]:
        return len(list(self._table.glob("topic=*/*.parquet"))), newest(self._table / "_delta_log", ".json")

    @property
    def is_running(self) -> bool:
        checkpoint = self._table / "_checkpoint"
        return newest(checkpoint / "offsets") > newest(checkpoint / "commits")

    def is_at(self, stage: str) -> bool:
        """Compared with the last look that found it elsewhere."""
        rows, version = self._look()
        if not self.is_running:
            self._rows, self._version = rows, version
            return False
        has_rows, is_in_table = rows > self._rows, version > self._version
        return stage == ("begun" if not has_rows else "in files" if not is_in_table else "in the table")


def newest(directory: Path, suffix: str = "") -> int:
    names = (path.name.removesuffix(suffix) for path in directory.glob(f"*{suffix}"))
    return max((int(name) for name in names if name.isdigit()), default=-1)


@pytest.mark.timeout(900)
def test_the_archive_is_whole_after_kills_at_every_stage(
    spark: Any, broker: ServedBroker, tmp_path: Path, spark_jars: Path
) -> None:
    """`kill -9` of the whole process group: nothing of the job gets to say goodbye."""
    topic, table = make_topic(broker), tmp_path / "table"
    arguments = ["--bootstrap", broker.bootstrap, "--topic", topic, "--table", str(table)]
    in_pieces = ["--interval", "0.1", "--option", "maxOffsetsPerTrigger=300"]
    kills = [*STAGES, *random.Random(4).choices(STAGES, k=int(os.environ.get("OTTLA_ARCHIVE_KILLS", "0")))]
    for turn, stage in enumerate(kills):
        with running_job("archive", *arguments, *in_pieces, jars=spark_jars) as running:
            # A stage that passes too fast to be caught comes again with the next batch.
            produce(broker, topic, map(str, range(turn * MORE_THAN_ENOUGH, (turn + 1) * MORE_THAN_ENOUGH)))
            stop_at(running, Batch(table), stage)
        assert Batch(table).is_running
    archive_once(spark, broker, [topic], table)

    produced = rows_in_topic(broker, topic)
    assert len(produced) == len(kills) * MORE_THAN_ENOUGH
    assert rows_seen_by_spark(spark, table) == produced
    assert rows_seen_without_spark(table) == produced


def stop_at(running: "subprocess.Popen[bytes]", batch: Batch, stage: str) -> None:
    """The job stands still at that stage."""

    def is_stopped() -> bool:
        assert running.poll() is None, "the job has ended by itself"
        if not batch.is_at(stage):
            return False
        os.killpg(running.pid, signal.SIGSTOP)
        if batch.is_at(stage):
            return True
        os.killpg(running.pid, signal.SIGCONT)
        return False

    wait_for(is_stopped, 240, f"no batch is {stage}", every_s=0.001)


def rows_in_topic(broker: ServedBroker, topic: str) -> list[Row]:
    records = topics.consume_all(broker, topic)
    return [(topic, record.partition(), record.offset(), record.value()) for record in records]


def test_a_batch_that_is_in_the_table_is_not_written_again(spark: Any, broker: ServedBroker, tmp_path: Path) -> None:
    """As after a kill between the table's commit and the checkpoint's."""
    topic, table = make_topic(broker), tmp_path / "table"
    produce(broker, topic, map(str, range(50)))
    archive_once(spark, broker, [topic], table)
    for path in (table / "_checkpoint" / "commits").iterdir():
        path.unlink()
    produce(broker, topic, map(str, range(50, 80)))

    archive_once(spark, broker, [topic], table)

    assert rows_seen_by_spark(spark, table) == rows_in_topic(broker, topic)


def test_what_is_wrong_is_said_in_one_sentence(spark_jars: Path, broker: ServedBroker, tmp_path: Path) -> None:
    topic = make_topic(broker, 1)
    here, table = ["--bootstrap", broker.bootstrap], ["--table", str(tmp_path / "table")]

    def said(*words: str) -> str:
        return failed_job(*words, jars=spark_jars).removeprefix("Error: ")

    assert said("archive", "--bootstrap", "127.0.0.1:1", "--topic", topic, *table) == (
        "no broker answers at 127.0.0.1:1"
    )
    assert said("run", *here, "--to", str(tmp_path)) == f"there is no topic ottla.events at {broker.bootstrap}"
    assert said("replay", *here, *table, "--from", topic, "--to", topic) == f"there is no table at {tmp_path}/table"

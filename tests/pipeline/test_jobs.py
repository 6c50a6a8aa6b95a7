"""The jobs from end to end as processes: here, on a standalone cluster, and the example that users copy."""

import json
import logging
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline import archive
from ottla.pipeline.jobs.job import load_table
from ottla.pipeline.observatory import TABLES
from ottla.pipeline.observatory.tables import write_tables
from tests.pipeline.examples import EXAMPLES, script
from tests.pipeline.jobs import job, running_job
from tests.pipeline.standalone import standalone_cluster
from tests.pipeline.test_observatory import Log
from tests.pipeline.test_report import eventful
from tests.pipeline.topics import make_topic, produce
from tests.served import ServedBroker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
EVENTS = "ottla.events"
STOP_WITHIN_S = 60
EXAMPLE = "orders_pipeline"


def rows_in(spark: Any, table: str) -> list[str]:
    return sorted(
        json.dumps(row.asDict(recursive=True), default=str) for row in spark.read.format("delta").load(table).collect()
    )


def events_topic(spark: Any, broker: ServedBroker) -> None:
    """Events of the report's test, as a broker would have published them."""
    rows = eventful(Log(spark)).frame().collect()
    produce(broker, EVENTS, [bytes(row.value).decode() for row in rows], key="g")


@pytest.mark.timeout(900)
@pytest.mark.skipif(
    "OTTLA_SPARK_CLUSTER" not in os.environ, reason="takes minutes: make nightly sets OTTLA_SPARK_CLUSTER"
)
def test_a_standalone_cluster_makes_the_same_tables(
    spark: Any, broker: ServedBroker, spark_jars: Path, tmp_path: Path
) -> None:
    """The same as `local[2]`, which is where this test's own session runs."""
    events_topic(spark, broker)
    here, there = tmp_path / "here", tmp_path / "there"
    with standalone_cluster(tmp_path) as url:
        arguments = ["--bootstrap", broker.bootstrap, "--to", str(there), "--shared-path"]
        said = job("run", *arguments, jars=spark_jars, master=url).splitlines()
    assert f"archived 27 records to {there}/events" in said
    assert said[-1] == f"wrote {there}/report.html"
    archive_here(spark, broker, [EVENTS], here / "events")
    write_tables(
        load_table(spark, f"{here}/events"), f"{here}/tables", no_progress_ms=60_000, report=lambda sentence: None
    )

    for name in ("events", *(f"tables/{table}" for table in TABLES)):
        assert rows_in(spark, f"{there}/{name}") == rows_in(spark, f"{here}/{name}"), name
    assert len(rows_in(spark, f"{there}/tables/rebalances")) == 2
    assert "2 rebalances" in (there / "report.html").read_text()


def test_ctrl_c_ends_a_continuous_archive_without_a_trace(
    broker: ServedBroker, spark_jars: Path, tmp_path: Path
) -> None:
    """At a terminal Java gets the signal too, and may be gone before the job has stopped."""
    topic = make_topic(broker, 1)
    produce(broker, topic, ["a"])
    arguments = ["--bootstrap", broker.bootstrap, "--topic", topic, "--table", f"{tmp_path}/table", "--interval", "1"]
    with running_job("archive", *arguments, jars=spark_jars, pipes_output=True) as process:
        assert process.stdout is not None
        line = b""
        while b"batch 0" not in line:
            line = process.stdout.readline()
            assert line, "the job has ended by itself"
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stdout.read()

        assert process.wait(STOP_WITHIN_S) == 130
    assert rest in (b"", b"stopped; the next run goes on from here\n")


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_query_is_stopped_between_two_looks_at_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    from ottla.pipeline.jobs.job import follow

    monkeypatch.setattr(logging, "disable", lambda level: None)
    query = Query(is_gone=is_gone)
    with pytest.raises(SystemExit) as ended:
        follow(lambda: query)  # type: ignore[arg-type, return-value]

    assert (ended.value.code, query.is_stopped) == (130, not is_gone)
    assert capsys.readouterr().err == "stopped; the next run goes on from here\n"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


class FailingQuery:
    recentProgress: tuple[Any, ...] = ()  # noqa: N815 - Spark calls it so.

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def awaitTermination(self, within_s: float) -> bool:  # noqa: N802 - Spark calls it so.
        if self.error is not None:
            raise self.error
        return True


@pytest.mark.parametrize(("failures", "is_over"), [(0, True), (1, True), (2, False)])
def test_query_is_started_again_once_if_it_failed_to_report(failures: int, is_over: bool) -> None:
    """SPARK-55271: Spark 4.1.1 fails when it has repeated a batch."""
    from pyspark.errors import StreamingQueryException

    from ottla.pipeline.jobs.job import follow

    words = (
        'Cannot invoke "scala.collection.IterableOps.map(f)" because the return value of "scala.Option.get()" is null'
    )
    errors = [*(StreamingQueryException(words) for _ in range(failures)), None]
    queries = iter(map(FailingQuery, errors))

    if is_over:
        assert follow(lambda: next(queries)) == 0  # type: ignore[arg-type, return-value]
    else:
        with pytest.raises(StreamingQueryException):
            follow(lambda: next(queries))  # type: ignore[arg-type, return-value]


class Query:
    """Ctrl-C comes while it is waited for; then Java may be gone."""

    recentProgress: tuple[Any, ...] = ()  # noqa: N815 - Spark calls it so.

    def __init__(self, *, is_gone: bool) -> None:
        self.is_gone = is_gone
        self.is_stopped = False

    def awaitTermination(self, within_s: float) -> bool:  # noqa: N802 - Spark calls it so.
        assert within_s <= 1
        os.kill(os.getpid(), signal.SIGINT)
        if self.is_gone:
            raise ConnectionError("Java does not answer")
        return False

    def stop(self) -> None:
        self.is_stopped = True


def archive_here(spark: Any, broker: ServedBroker, names: list[str], table: Path, schema: str | None = None) -> None:
    rows = archive.archived(archive.read_topics(spark, broker.bootstrap, names, {}), schema)
    query = archive.write_table(rows, str(table), f"{table}/_checkpoint", once=True, interval_s=1)
    assert query.awaitTermination(120), "the archive does not end"


async def test_the_example_sums_up_what_was_ordered(spark: Any, broker: ServedBroker, tmp_path: Path) -> None:
    orders, revenue = script(EXAMPLE, "orders"), script(EXAMPLE, "revenue")
    make_topic(broker, 1)
    await orders.send(broker.bootstrap, 500)
    archive_here(spark, broker, [orders.TOPIC], tmp_path / "orders", revenue.SCHEMA)

    sums = revenue.revenue(spark.read.format("delta").load(str(tmp_path / "orders"))).collect()

    chance = random.Random(1)
    made = [orders.order(number, chance) for number in range(500)]
    expected = {
        item: sum(one["pieces"] * one["price_cents"] for one in made if one["item"] == item) for item in orders.ITEMS
    }
    assert {row["item"]: row["revenue_cents"] for row in sums} == expected
    assert sum(row["orders"] for row in sums) == 500


def test_examples_guide_names_the_schema_of_the_example() -> None:
    assert f"'{script(EXAMPLE, 'revenue').SCHEMA}'" in (EXAMPLES / EXAMPLE / "README.md").read_text()

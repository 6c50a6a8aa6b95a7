"""The rows that the report reads from tables, and the page that they make; tests/pipeline/test_page.py has the page."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.events import Period, events_of
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.observatory.tables import write_tables
from ottla.pipeline.report.page import write_report
from ottla.pipeline.report.reading import POINTS_OF_LAG, TABLES, Findings, lag_over_time, read_tables
from tests.pipeline.test_observatory import START_MS, Log, sample

GUIDE = Path(__file__).parents[2] / "docs" / "pipeline.md"
pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def eventful(log: Log) -> Log:
    log.add(0, "group_loaded", generation=0)
    log.leader_changed(0, 0, leader=1, isr=[1, 2])
    log.leader_changed(5000, 1, previous_leader=1, isr=[1])
    log.leader_changed(6000, 2, leader=1, isr=[1])
    log.leader_changed(7000, 0, topic="quiet", leader=1, isr=[1])
    log.started(10, 0, "member joined", "a")
    log.generation(20, 1, ["a"], 10)
    log.completed(30, 1, 10, a=[0, 1])
    log.started(5000, 1, "session <expired>", "b")
    log.rejoined(8000, 1, "a")
    log.generation(8000, 2, ["a", "c"], 3000)
    log.completed(8100, 2, 100, a=[0], c=[1])
    tx = {"group_id": None, "transactional_id": "tx", "producer_id": 7, "producer_epoch": 0, "start_ms": START_MS}
    ended = {**tx, "outcome": "abort"}
    log.add(400, "transaction_decided", **ended, reason="timed out", open_ms=400, partition_count=1, group_ids=["g"])
    log.add(450, "transaction_completed", **ended)
    for number in range(10):
        sample(log, 10_000 * number, [5, 5], [10 + number, 5])
    return log


@pytest.fixture(scope="module")
def directory(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of the tables."""
    path = f"{tmp_path_factory.mktemp('observatory')}/report/tables"
    reported: list[str] = []
    write_tables(eventful(Log(spark)).frame(), path, no_progress_ms=60_000, report=reported.append)
    assert reported[0] == "rebalances: 2 rows"
    return path


@pytest.fixture(scope="module")
def tables(spark: Any, directory: str) -> dict[str, Any]:
    return {name: spark.read.format("delta").load(f"{directory}/{name}") for name in TABLES}


@pytest.fixture(scope="module")
def findings(tables: dict[str, Any]) -> Findings:
    return read_tables(tables)


def test_the_page_says_what_the_tables_say(findings: Findings, tmp_path: Path) -> None:
    text = write_report(findings, tmp_path / "report").read_text()

    assert "<strong>g</strong>: 2 rebalances, 0.1 s without all partitions</p>" in text
    assert "<td>session &lt;expired&gt;</td><td>b</td>" in text
    assert "t-1: a from 22:13:20 to 22:13:28, no owner from 22:13:28 to 22:13:28, c since 22:13:28" in text
    assert "<td>no progress</td>" in text
    assert "Lag of g: 14 records at most, 14 at the end" in text
    assert "1 transaction, 1 of them aborted; the longest was open for 0.4 s" in text
    assert 'aria-label="tx: timed out from 22:13:20 to 22:13:20"' in text
    assert "t-0: broker 1 from 22:13:20 to 22:13:25, no leader from 22:13:25 to 22:13:26, broker 1 since" in text


def test_only_the_groups_and_times_asked_for(tables: dict[str, Any], findings: Findings) -> None:
    def read(*groups: str, since: int | None = None, until: int | None = None) -> Findings:
        bounds = (None if at is None else START_MS + at for at in (since, until))
        return read_tables(tables, groups, Period(*bounds))

    assert [row.generation for row in findings.rebalances] == [1, 2]
    assert not read("another").rebalances
    late = read("g", since=5000)
    assert [row.generation for row in late.rebalances] == [2]
    assert [row.lag for row in late.lag] == [6, 7, 8, 9, 10, 11, 12, 13, 14]
    early = read("g", until=5000)
    assert ([row.generation for row in early.rebalances], early.stuck) == ([1], [])
    assert [(row.owner, row.partition) for row in early.ownership] == [("a", 0), ("a", 1)]


def test_recipes_for_polars_and_duckdb_work_as_pasted(directory: str) -> None:
    polars, duckdb, held = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)

    def printed(code: str, package: str) -> str:
        pytest.importorskip(package)
        command, where = [sys.executable, "-c", code], Path(directory).parents[1]
        return subprocess.run(command, cwd=where, capture_output=True, text=True, check=True).stdout

    assert re.search(r"g +┆ app-a +┆ 1 +┆ 3000", printed(polars, "polars"))
    assert re.search(r"tx +┆ abort +┆ timed out +┆ 1 +┆ 450", printed(held, "polars"))
    assert re.search(r"g +│ 2023-11-14 22:00:00 │ +14", printed(duckdb, "duckdb"))


def test_an_archive_without_events_is_an_error(spark: Any, tmp_path: Path) -> None:
    records = eventful(Log(spark)).frame()
    empty = {"no_progress_ms": 1, "report": lambda _: None}
    with pytest.raises(PipelineError, match=r"the archive has no events of ottla\.events$"):
        write_tables(records.limit(0), f"{tmp_path}/tables", **empty)
    with pytest.raises(PipelineError, match=r"the archive has no events of ottla\.events of that time$"):
        write_tables(records, f"{tmp_path}/tables", period=Period(None, START_MS), **empty)
    assert not list(tmp_path.iterdir())
    assert Period(START_MS + 5000, START_MS + 5001).of(events_of(records)).count() == 2


def test_only_partitions_that_had_more_than_one_leader_are_shown(findings: Findings) -> None:
    terms = [tuple(row) for row in findings.leadership]
    assert terms == [
        ("t-0", 1, START_MS, START_MS + 5000, None),
        ("t-0", 1, START_MS + 6000, None, 1000),
    ]


def test_many_samples_of_lag_are_thinned_out_and_peaks_stay(spark: Any) -> None:
    samples = spark.range(3000).selectExpr(
        "'g' AS group_id", "id % 2 AS partition", f"{START_MS} + (id div 2) * 100 AS sampled_ms",
        "IF(id = 1000, 500L, 1L) AS lag",
    )  # fmt: skip
    rows = lag_over_time(samples).collect()

    assert POINTS_OF_LAG <= len(rows) <= POINTS_OF_LAG + 2
    assert max(row.lag for row in rows) == 501
    assert [row.at_ms for row in rows] == sorted(row.at_ms for row in rows)

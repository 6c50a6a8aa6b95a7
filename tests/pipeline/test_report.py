"""The report of known tables: one page that needs nothing else, with what the tables say."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ottla.pipeline.observatory.tables import write_tables
from ottla.pipeline.report.page import write_report
from ottla.pipeline.report.reading import POINTS_OF_LAG, Findings, lag_over_time, read_tables, slowest_members
from tests.pipeline.test_observatory import START_MS, Log, sample

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
    for number in range(10):
        sample(log, 10_000 * number, [5, 5], [10 + number, 5])
    return log


@pytest.fixture(scope="module")
def tables(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("observatory")
    archive, directory = f"{path}/archive", f"{path}/tables"
    eventful(Log(spark)).frame().write.format("delta").save(archive)
    reported: list[str] = []
    write_tables(spark, archive, directory, no_progress_ms=60_000, report=reported.append)
    assert reported[0] == "rebalances: 2 rows"
    return directory


@pytest.fixture(scope="module")
def findings(spark: Any, tables: str) -> Findings:
    return read_tables(spark, tables)


def test_the_page_says_what_the_tables_say(findings: Findings, tmp_path: Path) -> None:
    page = write_report(findings, tmp_path / "report")
    text = page.read_text()

    assert "2 rebalances of 1 groups" in text
    assert "the longest of 2 completed took 3.1 s" in text
    assert "gen 2: session &lt;expired&gt; (b) → 2 members" in text
    assert "waited for app-a" in text
    assert "once, 3.00 s at most" in text
    assert "<td>no progress</td>" in text
    titles = [
        "Generations of g", "How long rebalances took", "Whom the others waited for", "Lag",
        "Who led the partitions that moved", "Partitions without an owner", "Stuck members",
    ]  # fmt: skip
    assert [title for title in re.findall(r">([^<>]+)</(?:text|h2)>", text) if title in titles] == titles


def test_the_page_needs_nothing_else_and_its_plots_are_files_too(findings: Findings, tmp_path: Path) -> None:
    page = write_report(findings, tmp_path / "report")
    text = page.read_text()

    assert text.count("<svg ") == 5
    assert not re.search(r"<script|<link|<img|src=|@import", text)
    files = sorted(path.name for path in page.parent.glob("*.svg"))
    assert files == ["durations.svg", "generations-1.svg", "lag.svg", "leadership.svg", "report.svg", "slowest.svg"]
    assert all(ElementTree.parse(page.parent / name).getroot().tag.endswith("svg") for name in files)


def test_all_plots_below_each_other_make_one_picture(findings: Findings, tmp_path: Path) -> None:
    directory = write_report(findings, tmp_path / "report").parent
    whole = ElementTree.parse(directory / "report.svg").getroot()

    sizes = [plot.get("height", "") for plot in whole.iter() if plot.get("height", "").endswith("pt")]
    heights_px = [float(size.removesuffix("pt")) * 4 / 3 for size in sizes]
    tops_px = [float(place.get("transform", "")[len("translate(0 ") : -1]) for place in whole if place.get("transform")]

    assert len(heights_px) == 5
    assert tops_px == pytest.approx([sum(heights_px[:place]) for place in range(5)], abs=0.01)
    assert whole.get("viewBox", "").split() == ["0", "0", "1008", f"{sum(heights_px):g}"]


def test_only_the_groups_asked_for(spark: Any, tables: str, findings: Findings) -> None:
    assert len(findings.rebalances) == 2
    assert len(read_tables(spark, tables, ["g"]).rebalances) == 2
    assert not read_tables(spark, tables, ["another"]).rebalances


def test_only_partitions_that_had_more_than_one_leader_are_shown(findings: Findings) -> None:
    terms = [tuple(row) for row in findings.leadership]
    assert terms == [
        ("t-0", 1, START_MS, START_MS + 5000, None),
        ("t-0", 1, START_MS + 6000, None, 1000),
    ]


def test_members_are_ranked_by_how_long_others_waited(spark: Any) -> None:
    rows = [("g", "x", 100), ("g", "y", 900), ("g", "x", 1000), ("g", "z", 0)]
    frame = spark.createDataFrame(rows, "group_id STRING, slowest_client_id STRING, slowest_ms BIGINT")
    ranked = [tuple(row) for row in slowest_members(frame).collect()]
    assert ranked == [("g", "x", 2, 1100, 1000), ("g", "y", 1, 900, 900)]


def test_many_samples_of_lag_are_thinned_out_and_peaks_stay(spark: Any) -> None:
    samples = spark.range(3000).selectExpr(
        "'g' AS group_id", "id % 2 AS partition", f"{START_MS} + (id div 2) * 100 AS sampled_ms",
        "IF(id = 1000, 500L, 1L) AS lag",
    )  # fmt: skip
    rows = lag_over_time(samples).collect()

    assert POINTS_OF_LAG <= len(rows) <= POINTS_OF_LAG + 2
    assert max(row.lag for row in rows) == 501
    assert [row.at_ms for row in rows] == sorted(row.at_ms for row in rows)

"""The two text formats, read back by prometheus-client's parsers; budgets; and the slices of a scrape."""

import asyncio
import gzip
from collections.abc import Iterator
from hashlib import sha256
from random import Random
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from ottla.broker.admin.http import HttpRequest
from ottla.broker.admin.metrics.exposition import Format, Sample, asked_format, header, labels, lines
from ottla.broker.admin.metrics.families import COUNTER, FAMILIES, GAUGE, HISTOGRAM, Family
from ottla.broker.admin.metrics.page import ITEMS_PER_SLICE, MetricsPage, ScrapeTurns
from ottla.broker.admin.metrics.source import Budget, SourceOfBroker
from ottla.broker.config.server import ServerConfig
from ottla.broker.histogram import Histogram
from ottla.broker.runtime import LoopRuntime
from tests.broker.wire import RecordingLog
from tests.simulation.loop import SimulationLoop, VirtualClock

HOSTILE = 'a"b\\n\nc\\"{},=\u2028 日本 \r\t\x00\ud800'


def written(family: Family, wanted: Format, *samples: Sample) -> str:
    text = header(family, wanted) + "".join(lines(family, sample) for sample in samples) + wanted.end
    return text.encode("utf-8", "replace").decode()


def parsed(text: str, wanted: Format) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    parse: Any = parse_openmetrics if wanted is Format.OPENMETRICS else parse_text
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("wanted", Format)
def test_labels_of_any_text_are_read_back(wanted: Format) -> None:
    family = Family("ottla_x", GAUGE, ("group",), 'Help with \\ and\nanother "line".')
    text = written(family, wanted, (labels(group=HOSTILE), 7), (labels(group=""), 1.5))

    expected = HOSTILE.encode("utf-8", "replace").decode()
    assert parsed(text, wanted) == {("ottla_x", (("group", expected),)): 7, ("ottla_x", (("group", ""),)): 1.5}


def test_long_labels_are_cut_and_stay_apart() -> None:
    """A scrape has each group's id once a partition."""
    longest, one, other = "g" * 256, "g" * 32_000 + "1", "\ud800" * 300

    assert labels(group=longest) == f'group="{longest}"'
    cut = [labels(group=each) for each in (one, "g" * 32_000 + "2", other)]
    assert len(set(cut)) == 3
    assert {len(each) for each in cut} == {len('group=""') + 256}
    assert cut[0] == f'group="{"g" * 239}~{sha256(one.encode()).hexdigest()[:16]}"'


@pytest.mark.parametrize("wanted", Format)
def test_counter_keeps_its_name_in_both_formats(wanted: Format) -> None:
    family = Family("ottla_x_total", COUNTER, (), "Counts.")
    text = written(family, wanted, ("", 3))
    assert parsed(text, wanted) == {("ottla_x_total", ()): 3}
    assert ("# TYPE ottla_x counter" in text) == (wanted is Format.OPENMETRICS)


@pytest.mark.parametrize("wanted", Format)
def test_histogram_has_cumulative_buckets_sum_and_count(wanted: Format) -> None:
    histogram = Histogram()
    for duration_ns in (500, 40_000, 40_000, 3_000_000, 60_000_000_000):
        histogram.observe(duration_ns)
    found = parsed(written(Family("ottla_h", HISTOGRAM, ("api",), "H."), wanted, ('api="Fetch"', histogram)), wanted)
    buckets = {dict(key)["le"]: value for (name, key), value in found.items() if name == "ottla_h_bucket"}

    assert len(buckets) == 22
    assert list(buckets.values()) == sorted(buckets.values())
    assert (buckets["3.2768e-05"], buckets["6.5536e-05"], buckets["+Inf"]) == (1, 3, 5)
    assert max(float(bound) for bound in buckets if bound != "+Inf") == pytest.approx(34.36, abs=0.01)
    assert found["ottla_h_count", (("api", "Fetch"),)] == 5
    assert found["ottla_h_sum", (("api", "Fetch"),)] == pytest.approx(60.0030805)


def test_openmetrics_is_given_to_clients_that_ask_for_it() -> None:
    assert asked_format("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.4") is Format.OPENMETRICS
    assert asked_format("*/*") is Format.TEXT


def test_names_are_prefixed_and_counters_end_in_total() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert family.name.startswith(("ottla_", "process_"))
        assert family.name.endswith("_total") == (family.kind == COUNTER), family.name
        assert family.help.endswith("."), family.name


# Budgets.


def test_first_come_keep_their_series_until_they_are_gone() -> None:
    budget = Budget(2, lambda topic: labels(topic=topic))

    def pass_over(*topics: str) -> list[str | None]:
        found = [budget.labels(topic) for topic in topics]
        budget.end_pass()
        return found

    assert pass_over("m", "n", "z") == ['topic="m"', 'topic="n"', None]
    assert budget.overflow == 1
    assert pass_over("a", "m", "n", "z") == [None, 'topic="m"', 'topic="n"', None]
    assert budget.overflow == 2
    assert pass_over("m", "z") == ['topic="m"', None]
    assert pass_over("a", "m", "z") == ['topic="a"', 'topic="m"', None]


# Pages.


class Numbers:
    """A source of so many samples, which counts the passes over it."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.passes = 0
        self.families = {"ottla_n": self._samples}

    def prepare(self) -> Iterator[None]:
        self.passes += 1
        return iter([None] * self.count)

    def _samples(self) -> Iterator[Sample | None]:
        for number in range(self.count):
            yield labels(n=number), number
            yield None


def test_scrape_leaves_the_loop_free_and_is_shared() -> None:
    loop = SimulationLoop()
    runtime = LoopRuntime(
        loop, ServerConfig(), node_id=1, clock=VirtualClock(loop), rng=Random(), log=RecordingLog(), executor=None
    )
    numbers = Numbers(5 * ITEMS_PER_SLICE)
    family = Family("ottla_n", GAUGE, ("n",), "N.")
    page = MetricsPage(runtime, [family], lambda: [SourceOfBroker('broker="1"', [numbers])], ScrapeTurns())

    async def story() -> None:
        asked = asyncio.ensure_future(page(HttpRequest("/metrics", {}, {})))
        zipped = asyncio.ensure_future(page(HttpRequest("/metrics", {}, {"accept-encoding": "gzip"})))
        openly = asyncio.ensure_future(page(HttpRequest("/metrics", {}, {"accept": "application/openmetrics-text"})))
        steps = 0
        while not asked.done():
            await asyncio.sleep(0)
            steps += 1
        assert steps > 15
        text = b"".join(asked.result().body)
        assert len(parsed(text.decode(), Format.TEXT)) == numbers.count
        assert b'ottla_n{broker="1",n="7"} 7\n' in text
        response = await zipped
        assert ("Content-Encoding", "gzip") in response.headers
        assert gzip.decompress(b"".join(response.body)) == text
        assert len(parsed(b"".join((await openly).body).decode(), Format.OPENMETRICS)) == numbers.count
        assert numbers.passes == 2

    loop.run_until_complete(story())
    loop.close()


def test_scraper_that_goes_away_leaves_the_text_to_others() -> None:
    loop = SimulationLoop()
    runtime = LoopRuntime(
        loop, ServerConfig(), node_id=1, clock=VirtualClock(loop), rng=Random(), log=RecordingLog(), executor=None
    )
    page = MetricsPage(
        runtime, [Family("ottla_n", GAUGE, (), "N.")], lambda: [SourceOfBroker("", [Numbers(2000)])], ScrapeTurns()
    )

    async def story() -> None:
        gone = asyncio.ensure_future(page(HttpRequest("/metrics", {}, {})))
        stays = asyncio.ensure_future(page(HttpRequest("/metrics", {}, {})))
        await asyncio.sleep(0)
        gone.cancel()
        assert (await stays).status == 200

    loop.run_until_complete(story())
    loop.close()

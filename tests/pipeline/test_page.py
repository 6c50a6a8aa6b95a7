"""The page of the report, of rows that are known: what it says first, and how it reads on screens and without one."""

import re
from pathlib import Path

import pytest

from ottla.pipeline.report.answers import Answer, Names, answers, waits
from ottla.pipeline.report.page import page_of, write_report
from tests.pipeline.findings import OWNERS, POD_1, POD_2, bad_night, owned, rebalance
from tests.pipeline.viewing import CHROMIUM_MISSING, PICTURES, Screen, chromium, look_at

GROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(bad_night())


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<style>.*</style>|<[^>]+>", " ", page, flags=re.DOTALL))


def test_the_answer_is_the_first_line_of_the_page(page: str) -> None:
    answer = "4 rebalances, 20 s without all partitions, 16 s of it waiting for billing-pod-2"
    assert f'<h1>Consumer groups</h1><p class="answer"><strong>billing</strong>: {answer}</p>' in page
    assert "<li><strong>audit</strong>: 1 rebalance, no time without all partitions</li>" in page
    assert "5 rebalances of 2 groups from 2023-11-14 22:13:20 to 2023-11-14 22:15:40 UTC" in page


def test_overlapping_gaps_and_waits_outside_them_count_once() -> None:
    found = bad_night()
    late = [owned(0, POD_1, 20, None, 10), owned(1, POD_1, 25, None, 10)]
    wait = rebalance(18, 2, "member left", slowest_member_id=POD_2, slowest_ms=4000)
    night = type(found)(rebalances=[wait], ownership=late, lag=[], stuck=[], leadership=[])
    names = Names(late)

    assert answers(night, names) == [Answer("billing", 1, 15_000, "billing-pod-2", 4000)]
    assert [(each.name, each.times, each.total_ms) for each in waits(night, names)] == [("billing-pod-2", 1, 4000)]


def test_members_that_share_a_client_id_are_told_apart() -> None:
    first, second = (f"app-{digit * 8}-0000-0000-0000-{digit * 12}" for digit in "ab")
    after_each_other = [owned(0, first, 0, 10), owned(0, second, 10, None)]
    at_once = [owned(0, first, 0, None), owned(1, second, 10, None)]

    assert Names(after_each_other).of("billing", first) == "app"
    assert [Names(at_once).of("billing", each) for each in (first, second)] == ["app…aaaaaa", "app…bbbbbb"]


def test_the_initial_delay_is_a_phase_of_its_own(page: str) -> None:
    (first, second) = re.findall(r"<tr><td class=\"time\">.*?</tr>", page)[:2]
    assert '<i class="delay"' in first
    assert "<td>initial delay</td>" in first
    assert '<i class="none"' in second
    assert "<td>billing-pod-2 16 s</td>" in second


def test_member_that_left_for_its_poll_interval_is_named(page: str) -> None:
    row = next(row for row in re.findall(r"<tr>.*?</tr>", page) if "consumer poll timeout" in row)
    assert "member left, max.poll.interval.ms exceeded: “consumer poll timeout has expired &lt;now&gt;”" in row
    assert "<td>billing-pod-2</td>" in row
    assert "billing member left, max.poll.interval.ms exceeded billing-pod-2" in text_of(page.partition("Stuck")[2])


def test_each_group_has_its_lag_on_its_own_scale(page: str) -> None:
    drawn = re.findall(r'aria-label="(Lag of [^"]+)".*?points="([^"]+)"', page)
    assert [said for said, _ in drawn] == [
        "Lag of billing: 250,000 records at most, 0 at the end",
        "Lag of audit: 3 records at most, 2 at the end",
    ]
    assert all(min(float(point.split(",")[1]) for point in points.split()) == 0 for _, points in drawn)


def test_transactions_have_their_aborts_and_the_reasons(page: str) -> None:
    section = page.partition("<h2>Transactions</h2>")[2]
    assert section.startswith('<p class="answer">5,203 transactions, 3 of them aborted; the longest was open for 61 s<')
    exporter, billing = re.findall(r"<tr><td>(exporter|billing-out)</td>(.*?)</tr>", section)
    assert exporter[1].endswith("<td>timed out (2), fenced by another producer (1)</td>")
    assert re.findall(r'number">([^<]*)<', exporter[1]) == ["1,200", "3", "0.2 s", "61 s"]
    assert re.findall(r'number">([^<]*)<', billing[1]) == ["4,000", "0", "0.0 s", "0.1 s"]
    assert 'aria-label="exporter: timed out from 22:13:30 to 22:14:31"' in section
    assert "<td>7, epoch 3</td><td>invoices, &lt;exports&gt;</td><td>billing</td>" in section


def test_transactions_alone_make_a_page() -> None:
    night = bad_night()
    page = page_of(
        type(night)(rebalances=[], ownership=[], lag=[], stuck=[], leadership=[], transactions=night.transactions)
    )
    assert "No rebalances" in text_of(page)
    assert "the longest was open for 61 s" in text_of(page)


def test_what_is_drawn_is_said_to_screen_readers(page: str) -> None:
    said = re.findall(r'role="img" aria-label="([^"]*)"', page)
    assert page.count('role="img"') == len(said) == 6 + 2 + 1 + 2
    assert said[0] == (
        "invoices-0: billing-pod-1 from 22:13:23 to 22:14:20, no owner from 22:14:20 to 22:14:36, "
        "billing-pod-1 from 22:14:36 to 22:14:50, no owner from 22:14:50 to 22:14:54, "
        "billing-pod-1 since 22:14:54"
    )
    assert page.count("<caption>") == page.count("<table>") == page.count('role="region" aria-label=')
    assert "<td" not in re.sub(r"<td[ >]", "", page)
    assert {name for name in OWNERS if name in page} == set()


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    page = write_report(bad_night(), tmp_path / "report")
    assert [path.name for path in page.parent.iterdir()] == ["report.html"]
    assert not re.search(r"<script|<link|<img|src=|@import|url\(|http", page.read_text())


@pytest.mark.skipif(chromium() is None, reason=CHROMIUM_MISSING)
def test_the_page_fits_phones_and_desks_in_both_schemes(tmp_path: Path) -> None:
    """The picture stays, to be looked at."""
    page = write_report(bad_night(), tmp_path)
    screens = [Screen(390, "light"), Screen(390, "dark"), Screen(1440, "light")]
    for screen, seen in zip(screens, look_at(page, screens, PICTURES / "report.png"), strict=True):
        assert (seen.width, seen.ground) == (screen.width, GROUNDS[screen.scheme])
        assert seen.content_width <= screen.width, "it scrolls sideways"
        assert seen.smallest_text_px >= 12
        assert seen.smallest_contrast >= 4.5, "text is hard to read"

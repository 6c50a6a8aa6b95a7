"""How the lines of a story look in a terminal: their zone, their colours, and where they are wrapped."""

import time
from collections.abc import Iterator

import click
import pytest

from ottla.cli.commands.why import _shown
from ottla.cli.operations.story import Story, StoryLine
from tests.cli.group_events import event

MOMENT = "2026-03-01 12:00:00.000+05:30"
REMOVED = "worker-2…000001 was removed: session expired, after 45.000 s without a heartbeat; it had t-0, t-1, t-2"


@pytest.fixture
def india(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("india")
def test_time_of_a_line_has_its_zone() -> None:
    *_, line = Story().lines_of(event("rebalance_started", 0, generation=0, cause="member joined", member_id="a"))

    assert line.moment == "1970-01-01 05:46:40.000+05:30"


def test_line_is_wrapped_between_words_below_its_text() -> None:
    shown = click.unstyle(_shown(StoryLine(MOMENT, REMOVED, is_heading=False), 80)).split("\n")

    indent = " " * (len(MOMENT) + 2)
    assert len(shown) == 3
    assert max(map(len, shown)) <= 80
    assert all(line.startswith(indent) for line in shown[1:])
    assert " ".join([shown[0].removeprefix(f"{MOMENT}  "), *(line.strip() for line in shown[1:])]) == REMOVED


@pytest.mark.parametrize("width", [None, len(MOMENT)])
def test_line_stays_whole_in_a_pipe_and_where_there_is_no_room(width: int | None) -> None:
    assert click.unstyle(_shown(StoryLine(MOMENT, REMOVED, is_heading=False), width)) == f"{MOMENT}  {REMOVED}"


@pytest.mark.parametrize(("text", "colour"), [("REBALANCE to generation 2", "yellow"), ("GENERATION 2", "green")])
def test_begin_and_end_of_a_rebalance_stand_out(text: str, colour: str) -> None:
    heading, other = (_shown(StoryLine(MOMENT, text, is_heading=is_heading), None) for is_heading in (True, False))

    assert click.style(text, bold=True, fg=colour) in heading
    assert click.style(text, fg=colour)[:5] not in other

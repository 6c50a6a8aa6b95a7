"""The broker's log, as it is written."""

import io
import json
import subprocess
import sys
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from ottla.broker.coordinators.observers import log_fact
from ottla.broker.logging import GROUP_LOGGER, HELD_LINES_MAX, LEVELS, LINES_PER_SECOND, ROOT, LazyLog
from ottla.coordinator.facts import Cause, RebalanceStarted


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_every_event_of_one_of_several_says_which_it_was() -> None:
    stream = io.StringIO()
    log = LazyLog("json", "info", stream)

    log.with_fields(broker=1).info("came", peer="a")
    log.with_fields(broker=1).with_fields(listener="x").warning("went", broker=2)
    log.info("alone")

    events = [{name: event[name] for name in event if name != "timestamp"} for event in lines(stream)]
    assert events == [
        {"event": "came", "logger": "ottla", "level": "info", "broker": 1, "peer": "a"},
        {"event": "went", "logger": "ottla", "level": "warning", "broker": 2, "listener": "x"},
        {"event": "alone", "logger": "ottla", "level": "info"},
    ]


def test_fields_of_now_are_asked_for_at_each_event() -> None:
    stream, now = io.StringIO(), [1, 2, 3, 4]
    log = LazyLog("json", "info", stream).with_fields_of_now(lambda: {"at": now.pop(0)})

    log.info("came")
    log.debug("not written")
    log.with_fields(broker=1).storage.info("went")
    log.info("given", at=9)

    assert [(event["event"], event["at"]) for event in lines(stream)] == [("came", 1), ("went", 2), ("given", 9)]


def test_the_level_holds_for_all_of_them() -> None:
    stream = io.StringIO()

    LazyLog("json", "warning", stream).with_fields(broker=1).info("came")

    assert stream.getvalue() == ""


def test_fields_without_a_value_are_left_out() -> None:
    stream = io.StringIO()
    LazyLog("json", "info", stream).info("joined", client_reason=None, members=0)
    (line,) = lines(stream)
    assert list(line) == ["timestamp", "level", "logger", "event", "members"]


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_hostile_text_stays_one_line_without_controls(log_format: str) -> None:
    """§17.2 of docs/operators.md"""
    stream = io.StringIO()
    hostile = "a\n2026 [error] forged\x1b[2J\x9b1m\u202e\u2028" + "x" * 300
    LazyLog(log_format, "info", stream).info("went", client_id=hostile, peers=[hostile], by={hostile: hostile})

    (line,) = stream.getvalue().splitlines()
    assert line.isprintable()
    assert "forged" in line
    assert "x" * 257 not in line
    assert "characters more" in line


def test_held_lines_come_later_with_their_own_time() -> None:
    stream = io.StringIO()
    log = LazyLog("json", "info", stream)
    other = log.with_fields(broker=1).metadata
    log.hold()
    other.info("topic created", topic="t")
    assert stream.getvalue() == ""
    between = datetime.now(UTC).isoformat()
    log.release()
    log.info("later")

    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["topic"], first["broker"], first["logger"]) == (
        "topic created", "t", 1, "ottla.metadata",
    )  # fmt: skip
    assert first["timestamp"].removesuffix("Z") < between[:26] <= second["timestamp"].removesuffix("Z")


def test_warning_brings_the_held_lines_before_it() -> None:
    stream = io.StringIO()
    log = LazyLog("json", "info", stream)
    log.hold()
    log.info("one")
    log.warning("two")
    log.info("three")

    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["one", "two", "three"]


def test_many_held_lines_are_written_before_there_are_too_many() -> None:
    stream = io.StringIO()
    log = LazyLog("json", "info", stream)
    log.hold()
    for number in range(HELD_LINES_MAX + 1):
        log.info(f"event {number}")

    assert len(stream.getvalue().splitlines()) == HELD_LINES_MAX + 1


def test_lines_name_their_logger() -> None:
    stream = io.StringIO()
    log = LazyLog("json", "info", stream).with_fields(broker=1)

    for each in (log.storage, log.replication, log.metadata, log.logger(GROUP_LOGGER), log):
        each.info("went")

    assert [line["logger"] for line in lines(stream)] == [
        "ottla.storage",
        "ottla.replication",
        "ottla.metadata",
        "ottla.group",
        "ottla",
    ]
    assert log.storage is log.storage


def test_error_has_an_id_of_its_kind_and_place() -> None:
    """§17.6 of docs/operators.md"""
    stream = io.StringIO()
    log = LazyLog("json", "info", stream)

    for make in (ValueError("a"), ValueError("b"), KeyError("a")):
        try:
            raise make
        except Exception as error:
            log.exception("failed")
            log.error("failed", exc_info=error)

    first, again, second, _, third, _ = [line["error_id"] for line in lines(stream)]
    assert first == again == second != third


def test_event_that_repeats_is_suppressed_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """§17.4 of docs/operators.md; other events are written all the same."""
    now = SimpleNamespace(ns=5_000_000_000)
    monkeypatch.setattr("ottla.broker.logging.time", SimpleNamespace(monotonic_ns=lambda: now.ns))
    stream = io.StringIO()
    log = LazyLog("json", "info", stream)
    for number in range(100):
        log.with_fields(broker=1).info("again", number=number)
        log.debug("again")
    log.info("other")
    now.ns += 1_000_000_000
    log.info("again", number=100)
    log.info("again", number=101)

    written = lines(stream)
    numbers = [line.get("number") for line in written]
    assert numbers == [*range(LINES_PER_SECOND), None, 100, 101]
    assert [line.get("suppressed") for line in written[-2:]] == [80, None]


def test_who_limits_its_lines_by_itself_has_all_of_them() -> None:
    stream = io.StringIO()
    log = LazyLog("json", "info", stream)
    own = log.without_limit()
    for number in range(5 * LINES_PER_SECOND):
        own.info("again", number=number)
    assert [line["number"] for line in lines(stream)] == [*range(5 * LINES_PER_SECOND)]

    log.levels.set(ROOT, LEVELS["error"])
    own.info("again", number=-1)
    assert len(lines(stream)) == 5 * LINES_PER_SECOND


def test_deadline_of_a_fact_is_written_by_the_wall_clock() -> None:
    stream = io.StringIO()
    fact = RebalanceStarted(
        group_id="g",
        generation=1,
        cause=Cause.MEMBER_JOINED,
        member_id="m",
        client_reason=None,
        members=1,
        join_deadline_ms=8_000,
    )
    log_fact(LazyLog("json", "info", stream), fact, now_ms=5_000, wall_ms=1_700_000_000_000)

    (line,) = lines(stream)
    assert line["join_deadline"] == "2023-11-14T22:13:23.000Z"
    assert "join_deadline_ms" not in line
    assert "client_reason" not in line


STORY = """
import importlib, io, sys
from ottla.broker.logging import LazyLog

stream = io.StringIO()
log = LazyLog({log_format!r}, stream=stream, owns_process={owns_process}).with_fields(broker=1).storage
try:
    raise OSError("the disk is gone")
except OSError:
    log.exception("not written")
assert "Traceback (most recent call last)" in stream.getvalue(), stream.getvalue()
assert "OSError: the disk is gone" in stream.getvalue(), stream.getvalue()
print("rich" in sys.modules, importlib.import_module("rich.console").Console.__name__)
"""


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize("owns_process", [True, False])
def test_rich_is_imported_only_where_others_may_want_it(log_format: str, *, owns_process: bool) -> None:
    """By structlog, for tracebacks in colour: 5 MiB. Others who use structlog in the process can expect it."""
    story = STORY.format(log_format=log_format, owns_process=owns_process)

    done = subprocess.run([sys.executable, "-c", story], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.split() == [str(not owns_process), "Console"]

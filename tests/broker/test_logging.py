"""The broker's log, as it is written."""

import io
import json

from ottla.broker.logging import LazyLog


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
        {"event": "came", "level": "info", "broker": 1, "peer": "a"},
        {"event": "went", "level": "warning", "broker": 2, "listener": "x"},
        {"event": "alone", "level": "info"},
    ]


def test_the_level_holds_for_all_of_them() -> None:
    stream = io.StringIO()

    LazyLog("json", "warning", stream).with_fields(broker=1).info("came")

    assert stream.getvalue() == ""

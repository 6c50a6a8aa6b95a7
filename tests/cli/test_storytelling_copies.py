"""`ottla groups story` and events that are there twice (docs/events.md)."""

import json
from types import SimpleNamespace

from ottla.cli.storytelling import COPIES_WITHIN, _Telling


def record(seq: int) -> SimpleNamespace:
    event = {"v": 1, "type": "records_skipped", "group_id": "g", "wall_ms": seq, "broker": 0, "run": 1, "seq": seq}
    return SimpleNamespace(value=json.dumps(event).encode())


def test_event_that_was_written_twice_is_told_once() -> None:
    telling = _Telling("g", as_json=True)
    for seq in (0, 1, 0):
        telling.tell(record(seq))
    past = telling.tell_past()

    later = [telling.tell(record(seq)) for seq in (1, 2, 2)]

    assert [json.loads(line)["seq"] for line in past] == [0, 1]
    assert [None if line is None else json.loads(line)["seq"] for line in later] == [None, 2, None]


def test_only_so_many_events_are_remembered() -> None:
    telling = _Telling("g", as_json=True)
    for seq in range(COPIES_WITHIN + 5):
        telling.tell(record(seq))

    assert len(telling._known) == COPIES_WITHIN

"""Events of a group that are in their topic twice (docs/events.md)."""

import json
from types import SimpleNamespace

from ottla.cli.operations.group_events import Event
from ottla.cli.operations.story_reader import COPIES_WITHIN, StoryReader


def record(seq: int) -> SimpleNamespace:
    event = {"v": 1, "type": "records_skipped", "group_id": "g", "wall_ms": seq, "broker": 0, "run": 1, "seq": seq}
    return SimpleNamespace(value=json.dumps(event).encode())


def sequence_number(event: Event) -> str:
    return str(event["seq"])


def test_event_that_was_written_twice_is_shown_once() -> None:
    reader = StoryReader("g", sequence_number)
    history = reader.texts([json.loads(record(seq).value) for seq in (0, 1)])
    later = [reader.read([record(seq)]) for seq in (1, 2, 2)]

    assert history == ["0", "1"]
    assert later == [[], ["2"], []]


def test_a_limited_number_of_events_is_remembered() -> None:
    reader = StoryReader("g", sequence_number)
    reader.read([record(seq) for seq in range(COPIES_WITHIN + 5)])

    assert len(reader._seen) == COPIES_WITHIN


def test_transaction_that_is_named_like_the_group_is_left_out() -> None:
    """Its events have the key that those of the group have."""
    began = {**json.loads(record(1).value), "type": "transaction_began", "transactional_id": "g"}
    del began["group_id"]
    reader = StoryReader("g", sequence_number)

    assert reader.texts([json.loads(record(0).value), began]) == ["0"]
    assert reader.read([SimpleNamespace(value=json.dumps(began).encode()), record(2)]) == ["2"]

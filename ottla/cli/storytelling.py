"""Reading the events of a group from `ottla.events`, for `ottla groups story`."""

import json
from dataclasses import replace
from typing import Any, cast

from ottla.cli.consuming import Limits, Source, consume_records
from ottla.cli.failures import ClientError
from ottla.cli.session import Session
from ottla.cli.story import Event, Story, order

EVENTS_TOPIC = "ottla.events"
_OF_EVERY_GROUP = ("dropped",)


async def tell_story(session: Session, group_id: str, *, follow: bool) -> None:
    """What is in the topic now, in order; with `follow` also what comes, until Ctrl-C. Raises ClientError."""
    source = Source(EVENTS_TOPIC, None, (), from_beginning=True, offset=None)
    told: list[Event] = []
    read: dict[int, int] = {}

    def collect(record: Any, /) -> None:
        read[record.partition] = record.offset
        event = _event_of(record, group_id)
        if event is not None:
            told.append(event)

    story = Story()

    def write(record: Any, /) -> str | None:
        event = _event_of(record, group_id)
        return None if event is None else _text(event, story, as_json=session.output.as_json)

    # The events of a group may be in several partitions, so what there is already has to be sorted first.
    goes_on = await consume_records(session, source, Limits(None, None, exit_at_end=True), collect)
    told.sort(key=order)
    lines = [text for event in told if (text := _text(event, story, as_json=session.output.as_json)) is not None]
    if not follow and not lines:
        raise ClientError(f"there are no events of group {group_id} in {EVENTS_TOPIC}")
    session.output.lines(lines)
    if follow and goes_on:
        await consume_records(session, replace(source, after=read), Limits(None, None, exit_at_end=False), write)


def _event_of(record: Any, group_id: str) -> Event | None:
    """None for events of others, and for records that are no events of a version known here."""
    try:
        value: object = json.loads(record.value or b"")
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    event = cast("Event", value)
    if event.get("v") != 1:
        return None
    is_ours = event.get("group_id") == group_id or event.get("type") in _OF_EVERY_GROUP
    return event if is_ours else None


def _text(event: Event, story: Story, *, as_json: bool) -> str | None:
    if as_json:
        return json.dumps(event, ensure_ascii=False)
    return "\n".join(story.tell(event)) or None

"""Reading the events of a group from `ottla.events`, for `ottla groups story`."""

import json
from typing import Any, cast

from ottla.cli.failures import ClientError
from ottla.cli.operations.consume import Limits, RecordSource, consume_records
from ottla.cli.operations.story import Event, Story, order
from ottla.cli.session import Session

EVENTS_TOPIC = "ottla.events"
_OF_EVERY_GROUP = ("dropped",)


async def tell_story(session: Session, group_id: str, *, follow: bool) -> None:
    """What is in the topic now, in order; with `follow` also what comes, until Ctrl-C. Raises ClientError."""
    source = RecordSource(EVENTS_TOPIC, None, (), from_beginning=True, offset=None)
    telling = _Telling(group_id, as_json=session.output.as_json)
    await consume_records(session, source, Limits(None, None, exit_at_end=not follow), telling.tell, telling.tell_past)
    if telling.is_reading_past:
        # Ctrl-C came first.
        session.output.lines(telling.tell_past())
    elif not follow and not telling.has_told:
        raise ClientError(f"there are no events of group {group_id} in {EVENTS_TOPIC}")


# A copy of an event comes a few seconds after it, and no later than so many others of its group.
COPIES_WITHIN = 10_000


class _Telling:
    """The events of a group may be in several partitions, so what there is already has to be sorted first."""

    def __init__(self, group_id: str, *, as_json: bool) -> None:
        self.has_told = False
        self.is_reading_past = True
        self._group_id = group_id
        self._as_json = as_json
        self._story = Story()
        self._past: list[Event] = []
        # The latest events, by who told them and as which.
        self._known: dict[tuple[int, int, int], None] = {}

    def tell(self, record: Any, /) -> str | None:
        event = _event_of(record, self._group_id)
        if event is None or self._is_copy(event):
            return None
        if self.is_reading_past:
            self._past.append(event)
            return None
        return self._text(event)

    def _is_copy(self, event: Event) -> bool:
        """What a broker could not be sure to have written, it has written again."""
        identity = (event["broker"], event["run"], event["seq"])
        if identity in self._known:
            return True
        self._known[identity] = None
        if len(self._known) > COPIES_WITHIN:
            del self._known[next(iter(self._known))]
        return False

    def tell_past(self) -> list[str]:
        self.is_reading_past = False
        self._past.sort(key=order)
        lines = [text for event in self._past if (text := self._text(event)) is not None]
        self._past.clear()
        self.has_told = bool(lines)
        return lines

    def _text(self, event: Event) -> str | None:
        if self._as_json:
            return json.dumps(event, ensure_ascii=False)
        return "\n".join(self._story.tell(event)) or None


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

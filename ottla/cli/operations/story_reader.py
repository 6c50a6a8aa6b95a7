"""Reading the events of a group from `ottla.events`, for `ottla groups story`."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from ottla.cli.client import ClientConfig
from ottla.cli.failures import ClientError
from ottla.cli.operations.consume import Limits, RecordSource, consume_records
from ottla.cli.operations.story import Event, order

EVENTS_TOPIC = "ottla.events"
_OF_EVERY_GROUP = ("dropped",)
# The copy of an event follows within a few seconds, and after at most this many other events of its group.
COPIES_WITHIN = 10_000

WriteEvent = Callable[[Event], str | None]
"""The text of an event; None for one without any."""


async def read_story(
    config: ClientConfig, group_id: str, write: WriteEvent, show: Callable[[list[str]], bool], *, follow: bool
) -> None:
    """Show the events of a group that the topic has, in order; with `follow` also those to come, until Ctrl-C.

    `show` returns false when its output is closed. Raises ClientError."""
    source = RecordSource(EVENTS_TOPIC, None, (), from_beginning=True, offset=None)
    reader = StoryReader(group_id, write)

    def take(records: Sequence[Any]) -> bool:
        return show(reader.read(records))

    def at_end() -> bool:
        return show(reader.replay_history())

    await consume_records(config, source, Limits(None, None, exit_at_end=not follow), take, at_end)
    if reader.is_reading_history:
        # Ctrl-C came first.
        show(reader.replay_history())
    elif not follow and not reader.has_text:
        raise ClientError(f"there are no events of group {group_id} in {EVENTS_TOPIC}")


class StoryReader:
    """Turns records into the text of one group's events, each event once.

    The events of a group may be in several partitions. Those that are in the topic at the beginning, its history, are
    therefore collected, and `replay_history` gives their text in order; `read` gives that of later ones at once."""

    def __init__(self, group_id: str, write: WriteEvent) -> None:
        self.has_text = False
        self.is_reading_history = True
        self._group_id = group_id
        self._write = write
        self._history: list[Event] = []
        # The latest events, by the broker, its run and its sequence number.
        self._seen: dict[tuple[int, int, int], None] = {}

    def read(self, records: Sequence[Any]) -> list[str]:
        events = list(self._new_events(records))
        if self.is_reading_history:
            self._history += events
            return []
        return self._texts(events)

    def replay_history(self) -> list[str]:
        self.is_reading_history = False
        texts = self._texts(sorted(self._history, key=order))
        self._history.clear()
        self.has_text = bool(texts)
        return texts

    def _new_events(self, records: Sequence[Any]) -> Iterator[Event]:
        for record in records:
            event = _event_of(record, self._group_id)
            if event is not None and not self._is_copy(event):
                yield event

    def _is_copy(self, event: Event) -> bool:
        """A broker that cannot be sure that an event was written writes it again."""
        identity = (event["broker"], event["run"], event["seq"])
        if identity in self._seen:
            return True
        self._seen[identity] = None
        if len(self._seen) > COPIES_WITHIN:
            del self._seen[next(iter(self._seen))]
        return False

    def _texts(self, events: Sequence[Event]) -> list[str]:
        return [text for event in events if (text := self._write(event)) is not None]


def _event_of(record: Any, group_id: str) -> Event | None:
    """None for events of other groups, and for records that are no events of a version known here."""
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

"""Reading the events of a group from `ottla.events`, for `ottla groups story`."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from ottla.cli.client import ClientConfig
from ottla.cli.failures import ClientError
from ottla.cli.operations.event_history import EVENTS_TOPIC, Span, read_history
from ottla.cli.operations.group_events import Event

_OF_EVERY_GROUP = ("dropped",)
# The copy of an event follows within a few seconds, and after at most this many other events of its group.
COPIES_WITHIN = 10_000

WriteEvent = Callable[[Event], str | None]
"""The text of an event; None for one without any."""


async def read_story(
    config: ClientConfig,
    group_id: str,
    write: WriteEvent,
    show: Callable[[list[str]], bool],
    *,
    span: Span,
    follow: bool,
) -> None:
    """Show the events of a group that the topic has, in order; with `follow` also those to come, until Ctrl-C.

    `show` returns false when its output is closed. Raises ClientError."""
    key = group_id.encode("utf-8", "replace")
    async with config.client() as client:
        history = await read_history(client, lambda of, kind, _: of == key or kind == b"dropped", span)
    reader = StoryReader(group_id, write)
    texts = reader.texts(history.events)
    if follow:
        # The client library's consumer is not for those who ask what has been.
        from ottla.cli.operations.consume import Limits, consume_records
        from ottla.cli.operations.record_source import RecordSource, Start

        source = RecordSource((EVENTS_TOPIC,), start=Start(offsets=history.ends))
        await consume_records(
            config, source, Limits(), lambda records: show(reader.read(records)), at_start=lambda: show(texts)
        )
        return
    if not texts:
        raise ClientError(f"there are no events of group {group_id} in {EVENTS_TOPIC}{_of_that_time(span)}")
    show(texts)


def _of_that_time(span: Span) -> str:
    return "" if span == Span() else " of that time"


class StoryReader:
    """Turns events and records into the text of one group's events, each event once."""

    def __init__(self, group_id: str, write: WriteEvent) -> None:
        self._group_id = group_id
        self._write = write
        # The latest events, by the broker, its run and its sequence number.
        self._seen: dict[tuple[int, int, int], None] = {}

    def read(self, records: Sequence[Any]) -> list[str]:
        events = map(_event_of, records)
        return self.texts(event for event in events if event is not None)

    def texts(self, events: Iterable[Event]) -> list[str]:
        new = (event for event in events if _is_of(event, self._group_id) and not self._is_copy(event))
        return [text for event in new if (text := self._write(event)) is not None]

    def _is_copy(self, event: Event) -> bool:
        """A broker that cannot be sure that an event was written writes it again."""
        identity = (event["broker"], event["run"], event["seq"])
        if identity in self._seen:
            return True
        self._seen[identity] = None
        if len(self._seen) > COPIES_WITHIN:
            del self._seen[next(iter(self._seen))]
        return False


def _event_of(record: Any) -> Event | None:
    """None for records that are no events of a version known here."""
    try:
        value: object = json.loads(record.value or b"")
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    event = cast("Event", value)
    return event if event.get("v") == 1 else None


def _is_of(event: Event, group_id: str) -> bool:
    """A record's key does not say it: a transactional id may be the name of a group."""
    return event.get("group_id") == group_id or event.get("type") in _OF_EVERY_GROUP

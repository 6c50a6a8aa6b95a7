"""The events that `ottla.events` has at this moment, read as fast as it goes: for 100,000 of them in under a second."""

import gc
import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from ottla.cli.client import EARLIEST, LATEST, Client, TopicPartition
from ottla.cli.failures import ClientError, check
from ottla.cli.operations.group_events import Event, order
from ottla.cli.operations.rebalances import TYPES, GroupRebalances
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

EVENTS_TOPIC = "ottla.events"
FETCH_BYTES = 32 * 1024 * 1024
# The newest version that names topics.
FETCH_HIGHEST = 12
FETCH_WAIT_MS = 500
# Before an event is decoded, which takes longer than all the rest. A quote within a string has a backslash before it.
_TYPE = re.compile(rb'"type"\s*:\s*"(\w+)"')
HOW_TO_SWITCH_ON = "start the brokers with ottla.events.enable=true (--set ottla.events.enable=true), then it fills"

TYPES_IN_BYTES = frozenset(name.encode() for name in TYPES)
DROPPED = b"dropped"

Wanted = Callable[[bytes | None, bytes, bytes], bool]
"""Whether an event is wanted, by its record's key, its type and the record's value."""


@dataclass(frozen=True, slots=True)
class Span:
    """Times of day in milliseconds since 1970, the last one exclusive; None: from the first event, up to the last."""

    since_ms: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class History:
    """The wanted events in their order, each once, and where the partitions ended when they were read."""

    events: list[Event]
    ends: Mapping[TopicPartition, int]


async def read_history(client: Client, wanted: Wanted, span: Span) -> History:
    """Raises ClientError, with a hint where there is no topic of events."""
    partitions = await _partitions(client)
    ends = await client.list_offsets(partitions, LATEST)
    first = await client.list_offsets(partitions, EARLIEST if span.since_ms is None else span.since_ms)
    starts = {key: ends[key] if offset < 0 else offset for key, offset in first.items()}
    chunks = await _Reading(client, starts, ends).chunks()
    with _without_collector():
        events = [event for chunk in chunks for event in _decoded(_wanted_values(chunk, wanted))]
        if span != Span():
            events = [event for event in events if _is_in(event, span)]
        events.sort(key=order)
        return History(list(_each_once(events)), ends)


async def _partitions(client: Client) -> list[TopicPartition]:
    (topic,) = (await client.metadata([EVENTS_TOPIC])).topics
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise ClientError(f"there is no topic {EVENTS_TOPIC}: {HOW_TO_SWITCH_ON}")
    check(f"topic {EVENTS_TOPIC}", topic.error_code)
    return [(EVENTS_TOPIC, row.partition_index) for row in topic.partitions]


class _Reading:
    """Fetches from `starts` to `ends`, all partitions of a leader together."""

    def __init__(
        self, client: Client, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> None:
        self._client = client
        self._next = {key: offset for key, offset in starts.items() if offset < ends[key]}
        self._ends = ends
        self._chunks: list[bytes] = []

    async def chunks(self) -> list[bytes]:
        while self._next:
            await self._client.retrying(self._fetch_once)
        return self._chunks

    async def _fetch_once(self) -> None:
        for leader, led in (await self._client.by_leader(sorted(self._next))).items():
            response = await self._client.ask_at(leader, self._request(led), FetchResponse, highest=FETCH_HIGHEST)
            check(f"cannot read {EVENTS_TOPIC}", response.error_code)
            for topic in response.responses:
                for data in topic.partitions:
                    self._take((EVENTS_TOPIC, data.partition_index), data)

    def _request(self, partitions: list[TopicPartition]) -> FetchRequest:
        rows = [
            FetchPartition(partition=index, fetch_offset=self._next[topic, index], partition_max_bytes=FETCH_BYTES)
            for topic, index in partitions
        ]
        return FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=0,
            session_id=0,
            topics=[FetchTopic(topic=EVENTS_TOPIC, partitions=rows)],
        )

    def _take(self, key: TopicPartition, data: PartitionData) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # Retention has removed what was the beginning a moment ago.
            self._next[key] = max(data.log_start_offset, self._next[key] + 1)
        else:
            check(f"cannot read {key[0]}-{key[1]}", data.error_code)
            records = bytes(data.records or b"")
            if records:
                self._chunks.append(records)
                self._next[key] = _offset_after(records, self._next[key])
        if self._next[key] >= self._ends[key]:
            del self._next[key]


def _offset_after(records: bytes, offset: int) -> int:
    from ottla.protocol.records.batch import iterate_batches

    for _, header in iterate_batches(records):
        offset = max(offset, header.base_offset + header.last_offset_delta + 1)
    return offset


def _wanted_values(chunk: bytes, wanted: Wanted) -> Iterator[bytes]:
    # The library reads records in C.
    from aiokafka.record.memory_records import MemoryRecords

    search = _TYPE.search
    batches: Any = MemoryRecords(chunk)
    while batches.has_next():
        for record in batches.next_batch():
            value: bytes = record.value or b""
            found = search(value)
            if found is not None and wanted(record.key, found[1], value):
                yield value


def _decoded(values: Iterable[bytes]) -> list[Event]:
    """Without what is no event of a version known here."""
    encoded = list(values)
    try:
        # All at once takes half the time.
        found: list[Any] = json.loads(b"[" + b",".join(encoded) + b"]")
    except ValueError:
        found = []
    if len(found) != len(encoded):
        found = [event for value in encoded if (event := _decoded_alone(value)) is not None]
    return [event for event in found if isinstance(event, dict) and cast("Event", event).get("v") == 1]


def _decoded_alone(value: bytes) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return None


def _is_in(event: Event, span: Span) -> bool:
    is_late_enough = span.since_ms is None or event["wall_ms"] >= span.since_ms
    return is_late_enough and (span.until_ms is None or event["wall_ms"] < span.until_ms)


def _each_once(events: Sequence[Event]) -> Iterator[Event]:
    """A broker that cannot be sure that an event was written writes it again. Copies are neighbours in the order."""
    last: Event | None = None
    for event in events:
        if last is None or event["seq"] != last["seq"] or order(event) != order(last):
            yield event
        last = event


@contextmanager
def _without_collector() -> Generator[None]:
    """It would look through a hundred thousand dicts in the making again and again, for half of the time. They are kept
    until the command ends."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


async def group_rebalances(client: Client, group_id: str, span: Span) -> GroupRebalances:
    """Raises ClientError where there are no events of the group at that time."""
    group_key = group_id.encode("utf-8", "replace")

    def is_wanted(key: bytes | None, kind: bytes, value: bytes) -> bool:
        return kind == DROPPED or (key == group_key and _matters(kind, value))

    history = await read_history(client, is_wanted, span)
    group = GroupRebalances(group_id)
    for event in history.events:
        group.add(event)
    group.end()
    if all(event["type"] == "dropped" for event in history.events):
        when = "" if span == Span() else " of that time"
        raise ClientError(f"there are no events of group {group_id} in {EVENTS_TOPIC}{when}")
    return group


def _matters(kind: bytes, value: bytes) -> bool:
    """Most events are not decoded. Of the states, the one without members matters."""
    return kind in TYPES_IN_BYTES and (kind != b"state_changed" or b'"Empty"' in value or b'"Dead"' in value)


async def all_rebalances(client: Client, span: Span) -> list[GroupRebalances]:
    """Those that were longest without all partitions, first."""
    history = await read_history(client, lambda _, kind, value: kind != DROPPED and _matters(kind, value), span)
    groups: dict[str, GroupRebalances] = {}
    for event in history.events:
        group_id = event["group_id"]
        groups.setdefault(group_id, GroupRebalances(group_id)).add(event)
    for group in groups.values():
        group.end()
    return sorted(groups.values(), key=lambda group: (-group.incomplete_ms, -group.rebalance_ms, group.group_id))

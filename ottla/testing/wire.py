"""The last requests of clients and what they were answered, and what is known of each connection from them.

A route that notes stands in place of every route of a broker, before what fault rules do: it notes who asked for what,
and the error of the answer that the client gets. Each request has an `AnsweringRoute` of its own, so that its answer is
found again where it is parked. Of answers to Fetch it notes how far consumers were given each partition. Keys, values
and secrets are never kept.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ottla.broker.server.dispatch import Route
from ottla.broker.server.peer_connection import BROKER_CLIENT_ID
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import iterate_batches
from ottla.testing.faulty_dispatcher import StandInRoute

if TYPE_CHECKING:
    from ottla.testing.coverage import Coverage

EVENTS_KEPT = 4096
MEMBERS_KEPT = 4096
NAMES_KEPT = 10_000
"""Client ids whose connections are counted: one that nothing was heard of for longer begins with 1 again."""
DELIVERIES_KEPT = 100_000
"""Partitions."""
NAMES_SHOWN = 3
FETCH = "Fetch"
TOPIC_ID = "topic id "
_BRIEF_FIELDS = {
    "group_id": "",
    "member_id": "member ",
    "generation_id": "generation ",
    "generation_id_or_member_epoch": "generation ",
    "transactional_id": "transactional ",
    "key": "key ",
}

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class ConnectionNotes:
    """What the requests of one connection have shown so far."""

    name: str
    opened_in: str
    client_id: str | None = None
    groups: dict[str, None] = field(default_factory=dict[str, None])
    apis: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    audited: Any = None
    """Of the recorder of the audit."""

    @property
    def is_of_broker(self) -> bool:
        return (self.client_id or "").startswith(BROKER_CLIENT_ID)


@dataclass(slots=True)
class WireEvent:
    """A request; with its answer, where that is known."""

    at_ns: int
    connection: ConnectionNotes
    api: str
    version: int
    what: str
    member_id: str = ""
    error: int | None = None
    """None: it has no answer yet."""
    answered_ns: int = 0
    audit: Any = None
    """What the recorder of the audit finds its answer by."""


class Deliveries:
    """Of all consumers together: in a group each partition has one."""

    def __init__(self) -> None:
        # By topic id, or by name in versions that have no ids, and partition: the offset after the last one delivered.
        self._ends: dict[tuple[bytes | str, int], int] = {}

    def note(self, response: Any) -> None:
        """A FetchResponse that goes to a client."""
        for topic in response.responses:
            key = topic.topic or topic.topic_id
            for partition in topic.partitions:
                end = _end_of(partition.records)
                if end is not None:
                    place = key, partition.partition_index
                    keep_last(self._ends, place, max(end, self._ends.get(place, 0)), DELIVERIES_KEPT)

    def end(self, name: str, topic_id: bytes, partition: int) -> int:
        """The offset after the last one delivered; 0 where nothing was."""
        return max(self._ends.get((name, partition), 0), self._ends.get((topic_id, partition), 0))

    def clear(self) -> None:
        self._ends.clear()


def _end_of(records: "bytes | memoryview | list[memoryview] | None") -> int | None:
    """The offset after the last batch, which is that of the last buffer; None without records."""
    if not records:
        return None
    end = None
    for _, header in iterate_batches(records[-1] if isinstance(records, list) else records):
        end = header.next_offset
    return end


class RequestRecorder(Protocol):
    """What the audit keeps of a test."""

    def asked(self, event: WireEvent, connection: Any, request: Any) -> None:
        """Before the request is handled."""

    def answered(self, event: WireEvent, response: Any) -> None:
        """The client gets this answer, unless its connection breaks."""

    def note_deletion(self, topic: str, index: int, before: int) -> None:
        """The test deletes the records below an offset."""

    def note_forged(self, producer_id: int) -> None:
        """The test writes in the name of a producer."""


class WireRing:
    """The last EVENTS_KEPT requests of clients, the oldest first."""

    def __init__(self) -> None:
        self._events: deque[WireEvent] = deque(maxlen=EVENTS_KEPT)
        # Of connections that are open, and those that were closed since the last one was opened.
        self._notes: dict[Any, ConnectionNotes] = {}
        self._numbers: dict[str, int] = {}
        # The connection that carried the last request of a member of a group; the last one heard of is the last.
        self._members: dict[str, Any] = {}
        self.deliveries = Deliveries()
        self.count = 0
        """Of all requests so far."""
        self.test = ""
        """The test that is running."""
        self.recorder: RequestRecorder | None = None
        """What the audit is made from; None without one."""
        self.coverage: Coverage | None = None
        """Of the suite; None where nothing is counted."""

    def record(self, recorder: "RequestRecorder | None") -> None:
        """For the audit, from now on."""
        self.recorder = recorder
        for notes in self._notes.values():
            notes.audited = None

    def noting(self, route: Route) -> Route:
        """What stands in place of a route of a broker."""
        return NotingRoute(self, route)

    def since(self, count: int) -> list[WireEvent]:
        """Those that followed the first `count`, as far as they are kept."""
        kept = list(self._events)
        return kept[max(len(kept) - (self.count - count), 0) :]

    def notes_of(self, connection: Any) -> ConnectionNotes:
        """Of one that has sent nothing yet, they say that it is new."""
        notes = self._notes.get(connection)
        return ConnectionNotes("new", self.test) if notes is None else notes

    def is_connected(self, group_id: str, member_id: str, client_id: str) -> bool:
        """Whether a connection is open that has carried requests of a member; of one that has not sent its id yet, one
        of its client for its group."""
        connection = self._members.get(member_id)
        if connection is not None:
            return not connection.is_closed
        return any(
            not each.is_closed and group_id in notes.groups and (notes.client_id or "") == client_id
            for each, notes in self._notes.items()
        )

    def answered(self, member_id: str, error: ErrorCode, since_ns: int) -> Iterator[WireEvent]:
        """Requests of a member since a moment that were answered with an error."""
        for event in reversed(self._events):
            if event.at_ns < since_ns:
                return
            if event.member_id == member_id and event.error == error:
                yield event

    def handle(self, route: Route, context: RequestContext, request: Any) -> Any:
        """Calls the handler of a route, with notes of the request and its answer."""
        event = self._begin(context, request)
        context.route = AnsweringRoute(self, route, event)
        if self.recorder is not None:
            self.recorder.asked(event, context.connection, request)
        if self.coverage is not None and not event.connection.is_of_broker:
            self.coverage.asked(context, request)
        try:
            response = route.handle(context, request)
        except KafkaError as error:
            _end(event, int(error.code))
            if self.coverage is not None:
                self.coverage.failed(event.api, int(error.code))
            raise
        if response is not None:
            self.end(event, response)
        elif not context.is_parked and not context.connection.is_closed:
            # Produce with acks=0.
            _end(event, 0)
        return response

    def end(self, event: WireEvent, response: Any) -> None:
        """The client gets this answer."""
        _end(event, error_in(response))
        if self.recorder is not None:
            self.recorder.answered(event, response)
        if self.coverage is not None and not event.connection.is_of_broker:
            self.coverage.answered(event.api, response)
        if event.api == FETCH and not event.connection.is_of_broker:
            self.deliveries.note(response)

    def _begin(self, context: RequestContext, request: Any) -> WireEvent:
        api = context.route.api.name
        notes = self._notes.get(context.connection)
        if notes is None:
            notes = self._new_notes(context)
            self._notes[context.connection] = notes
        notes.apis.setdefault(api, set()).add(context.api_version)
        group_id, member_id = getattr(request, "group_id", None), getattr(request, "member_id", "") or ""
        if group_id:
            notes.groups[group_id] = None
        if member_id:
            keep_last(self._members, member_id, context.connection, MEMBERS_KEPT)
        event = WireEvent(monotonic_ns(), notes, api, context.api_version, brief(request), member_id)
        self._events.append(event)
        self.count += 1
        return event

    def _new_notes(self, context: RequestContext) -> ConnectionNotes:
        client_id = context.client_id
        short = client_id or "client"
        self._notes = {each: notes for each, notes in self._notes.items() if not each.is_closed}
        keep_last(self._numbers, short, self._numbers.get(short, 0) + 1, NAMES_KEPT)
        return ConnectionNotes(f"{short}#{self._numbers[short]}", self.test, client_id)


def keep_last(kept: dict[K, V], key: K, value: V, count: int) -> None:
    """Adds an entry, as the last one; beyond so many the one goes that was added longest ago."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > count:
        del kept[next(iter(kept))]


class NotingRoute(StandInRoute):
    """In place of a route, faulty or not, whose requests are noted."""

    __slots__ = ()

    def __init__(self, ring: WireRing, served: Route) -> None:
        super().__init__(served)
        self.handle = partial(ring.handle, served)


class AnsweringRoute(StandInRoute):
    """The route of one request, which notes the answer when its frame is built."""

    __slots__ = ("_event", "_ring")

    def __init__(self, ring: WireRing, served: Route, event: WireEvent) -> None:
        super().__init__(served)
        self._ring = ring
        self._event = event
        self.build_frame = partial(self._noted, served.build_frame)
        in_slices = served.build_in_slices
        self.build_in_slices = None if in_slices is None else partial(self._noted, in_slices)

    def _noted(self, build: Callable[[Any, int], Any], response: Any, correlation_id: int) -> Any:
        self._ring.end(self._event, response)
        return build(response, correlation_id)


def _end(event: WireEvent, error: int) -> None:
    event.error = error
    event.answered_ns = monotonic_ns()


def error_in(response: Any) -> int:
    """The first error of a response: its own, or one of a topic, a group or a partition in it; 0 without any."""
    own = getattr(response, "error_code", 0)
    if own:
        return int(own)
    for name in ("responses", "topics", "groups", "coordinators", "results"):
        for part in getattr(response, name, None) or ():
            found = _error_in_part(part)
            if found:
                return found
    return 0


def _error_in_part(part: Any) -> int:
    own = getattr(part, "error_code", 0)
    if own:
        return int(own)
    for name in ("partition_responses", "partitions", "topics"):
        for inner in getattr(part, name, None) or ():
            found = int(getattr(inner, "error_code", 0) or 0)
            if found:
                return found
    return 0


def brief(request: Any) -> str:
    """The fields of a request that say what it is about: group, generation, topics, transactional id, and the offsets
    that it commits."""
    words: list[str] = []
    for name, word in _BRIEF_FIELDS.items():
        value = getattr(request, name, None)
        if isinstance(value, str | int) and value != "":
            words.append(f"{word}{value}")
    topics: Any = getattr(request, "topics", None) or getattr(request, "topic_data", None) or ()
    places = [(topic, each) for topic in topics for each in _committed(topic)] or [(topic, None) for topic in topics]
    if places:
        more = f" and {len(places) - NAMES_SHOWN} more" if len(places) > NAMES_SHOWN else ""
        words.append(", ".join(_place(topic, each) for topic, each in places[:NAMES_SHOWN]) + more)
    return " ".join(words)


def _committed(topic: Any) -> Sequence[Any]:
    """Its partitions, where the request commits offsets."""
    partitions = getattr(topic, "partitions", None) or ()
    return partitions if partitions and hasattr(partitions[0], "committed_offset") else ()


def _place(topic: Any, committed: Any) -> str:
    name = _topic_name(topic)
    return name if committed is None else f"{name}-{committed.partition_index}: {committed.committed_offset}"


def _topic_name(topic: Any) -> str:
    if isinstance(topic, str):
        return topic
    name = getattr(topic, "name", None) or getattr(topic, "topic", None)
    if name:
        return str(name)
    topic_id = getattr(topic, "topic_id", b"")
    return _short_id(topic_id) if topic_id else "?"


def _short_id(topic_id: bytes) -> str:
    return f"{TOPIC_ID}{topic_id.hex()[:8]}"


def with_topic_names(what: str, names: Mapping[bytes, str]) -> str:
    """What `brief` gives, with the names of topics for their ids, as far as they are known."""
    if TOPIC_ID in what:
        for topic_id, name in names.items():
            what = what.replace(_short_id(topic_id), name)
    return what

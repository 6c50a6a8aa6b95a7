"""The last requests of clients and what they were answered, and what is known of each connection from them.

A route that notes stands in place of every route of a broker, before what fault rules do: it notes who asked for what,
and the error of the answer that the client gets. A request that is parked keeps an `AnsweringRoute` of its own, so
that its answer is found again. Of answers to Fetch it notes how far consumers were given each partition. Keys, values
and secrets are never kept.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Protocol

from ottla.broker.server.dispatch import Route
from ottla.broker.server.peer_connection import BROKER_CLIENT_ID
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.testing.deliveries import Deliveries, keep_last
from ottla.testing.faulty_dispatcher import StandInRoute, of_plain
from ottla.testing.wire_words import brief_of, error_in

if TYPE_CHECKING:
    from ottla.coordinator.events import OffsetToCommit
    from ottla.testing.coverage import Coverage

EVENTS_KEPT = 4096
MEMBERS_KEPT = 4096
DEFERRED_KEPT = 1000
NAMES_KEPT = 10_000
"""Client ids whose connections are counted: one that nothing was heard of for longer begins with 1 again."""
FETCH = "Fetch"
_number_of = attrgetter("number")


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
    worker: str = ""
    """The prefix of the worker that it belongs to, of several that share the brokers."""
    last_route: Any = None
    """That of its last request."""
    is_of_broker: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_of_broker = (self.client_id or "").startswith(BROKER_CLIENT_ID)


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
    number: int = 0
    """How many requests there were with it."""


class RequestRecorder(Protocol):
    """What the audit keeps of a test."""

    def asked(self, event: WireEvent, connection: Any, request: Any) -> None:
        """Before the request is handled."""

    def answered(self, event: WireEvent, response: Any) -> None:
        """The client gets this answer, unless its connection breaks."""

    def unanswered(self, event: WireEvent) -> None:
        """The request was handled, and has no answer now."""

    def note_deletion(self, topic: str, index: int, before: int) -> None:
        """The test deletes the records below an offset."""

    def note_forged(self, producer_id: int) -> None:
        """The test writes in the name of a producer."""

    def note_offsets(self, group_id: str, offsets: "Sequence[OffsetToCommit]") -> None:
        """The test commits offsets of a group."""


class WireRing:
    """The last EVENTS_KEPT requests of clients, the oldest first; those of brokers, which fetch from each other all the
    while, only where they were answered with an error."""

    def __init__(self) -> None:
        self._events: deque[WireEvent] = deque(maxlen=EVENTS_KEPT)
        # Of connections that are open, and those that were closed since the last one was opened.
        self._notes: dict[Any, ConnectionNotes] = {}
        self._numbers: dict[str, int] = {}
        # The connection that carried the last request of a member of a group; the last one heard of is the last.
        self._members: dict[str, Any] = {}
        # Answers that are not built yet, by their identity, which they keep as long as they are here.
        self._deferred: dict[int, tuple[WireEvent, Any]] = {}
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
        self.forget_audited("")

    def forget_audited(self, worker: str) -> None:
        """Of the connections of a worker, or of those that belong to none."""
        for notes in self._notes.values():
            if notes.worker == worker:
                notes.audited = None

    def noting(self, route: Route) -> Route:
        """What stands in place of a route of a broker."""
        return (DeferringRoute if route.defers_answer else NotingRoute)(self, route)

    def since(self, count: int) -> list[WireEvent]:
        """Those that followed the first `count`, as far as they are kept."""
        return sorted((each for each in self._events if each.number > count), key=_number_of)

    def last_request_ns(self) -> int:
        """When the last one of a client came, by `monotonic_ns`; 0 where none is kept."""
        return next((each.at_ns for each in reversed(self._events) if not each.connection.is_of_broker), 0)

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

    def begin(self, route: "NotingRoute", said: str, context: RequestContext, request: Any) -> WireEvent:
        """A request has come; `said` is what it is about in brief."""
        connection = context.connection
        notes = self._notes.get(connection)
        if notes is None:
            notes = self._notes[connection] = self._new_notes(context)
        api, version = route.api.name, route.version
        if notes.last_route is not route:
            notes.last_route = route
            notes.apis.setdefault(api, set()).add(version)
        member_id = ""
        if route.has_group:
            member_id = self._note_group(notes, connection, request)
        self.count += 1
        event = WireEvent(monotonic_ns(), notes, api, version, said, member_id, number=self.count)
        if not notes.is_of_broker:
            self._events.append(event)
        if self.recorder is not None:
            self.recorder.asked(event, connection, request)
        if self.coverage is not None and not notes.is_of_broker:
            self.coverage.asked(context, request)
        return event

    def end(self, event: WireEvent, response: Any) -> None:
        """The client gets this answer."""
        if self._deferred:
            self._deferred.pop(id(response), None)
        self._note_answer(event, response)
        if self.recorder is not None:
            self.recorder.answered(event, response)
        if event.api == FETCH and not event.connection.is_of_broker:
            self.deliveries.note(response)

    def defer(self, event: WireEvent, response: Any) -> None:
        """A write that fails still changes the answer. The recorder of the audit looks at it by itself."""
        if len(self._deferred) >= DEFERRED_KEPT:
            # Of connections that were closed before.
            del self._deferred[next(iter(self._deferred))]
        self._deferred[id(response)] = event, response
        if self.recorder is not None:
            self.recorder.answered(event, response)

    def end_deferred(self, response: Any) -> None:
        """The answer waited for what was written."""
        deferred = self._deferred.pop(id(response), None)
        if deferred is not None:
            self._note_answer(deferred[0], response)

    def _note_answer(self, event: WireEvent, response: Any) -> None:
        event.error = error_in(response)
        event.answered_ns = monotonic_ns()
        self._keep_failed(event)
        if self.coverage is not None and not event.connection.is_of_broker:
            self.coverage.answered(event.api, response)

    def _keep_failed(self, event: WireEvent) -> None:
        """That of a broker has been left out until now."""
        if event.error and event.connection.is_of_broker:
            self._events.append(event)

    def end_without_answer(self, event: WireEvent, context: RequestContext) -> None:
        """The request is parked, or its connection was closed, or the client wants none, as Produce with acks=0."""
        if self.recorder is not None:
            self.recorder.unanswered(event)
        if not context.is_parked and not context.connection.is_closed:
            event.error = 0
            event.answered_ns = monotonic_ns()

    def fail(self, event: WireEvent, error: Exception) -> None:
        """The client gets what its API answers to this error."""
        if self.recorder is not None:
            self.recorder.unanswered(event)
        if isinstance(error, KafkaError):
            event.error = int(error.code)
            event.answered_ns = monotonic_ns()
            self._keep_failed(event)
            if self.coverage is not None:
                self.coverage.failed(event.api, event.error)

    def _note_group(self, notes: ConnectionNotes, connection: Any, request: Any) -> str:
        """Gives the member id, where the request has one."""
        group_id, member_id = request.group_id, getattr(request, "member_id", "") or ""
        if group_id:
            notes.groups[group_id] = None
        if member_id:
            keep_last(self._members, member_id, connection, MEMBERS_KEPT)
        return member_id

    def _new_notes(self, context: RequestContext) -> ConnectionNotes:
        client_id = context.client_id
        short = client_id or "client"
        self._notes = {each: notes for each, notes in self._notes.items() if not each.is_closed}
        keep_last(self._numbers, short, self._numbers.get(short, 0) + 1, NAMES_KEPT)
        return ConnectionNotes(f"{short}#{self._numbers[short]}", self.test, client_id)


class NotingRoute(StandInRoute):
    """In place of a route, faulty or not, whose requests are noted."""

    __slots__ = ("_brief", "_ring", "_spare", "has_group")

    build_frame: Any = of_plain("build_frame")

    def __init__(self, ring: WireRing, served: Route) -> None:
        super().__init__(served)
        self._ring = ring
        request_class = served.api.request_class()
        self._brief = brief_of(request_class)
        self.has_group = hasattr(request_class, "group_id")
        # The route of the next request, unless it is parked: then it keeps this one.
        self._spare: AnsweringRoute | None = None
        self.handle = self._noted

    def _noted(self, context: RequestContext, request: Any) -> Any:
        """Calls the handler of the route, with notes of the request and its answer."""
        ring, served = self._ring, self._plain
        event = ring.begin(self, self._brief(request), context, request)
        answering, self._spare = self._spare or AnsweringRoute(ring, served), None
        answering.event = event
        context.route = answering
        try:
            response = served.handle(context, request)
        except Exception as error:
            self._spare = answering
            ring.fail(event, error)
            raise
        if response is None:
            ring.end_without_answer(event, context)
        elif self.defers_answer:
            ring.defer(event, response)
        else:
            ring.end(event, response)
        if not context.is_parked:
            self._spare = answering
        return response


class DeferringRoute(NotingRoute):
    """Of Produce, whose answers are built when the records are in the log."""

    __slots__ = ()

    def build_frame(self, response: Any, correlation_id: int) -> Any:
        self._ring.end_deferred(response)
        return self._plain.build_frame(response, correlation_id)


class AnsweringRoute(StandInRoute):
    """The route of one request at a time, which notes the answer when its frame is built."""

    __slots__ = ("_ring", "event")

    event: WireEvent
    """The request's."""

    def __init__(self, ring: WireRing, served: Route) -> None:
        super().__init__(served)
        self._ring = ring
        self.build_frame = partial(self._noted, "build_frame")
        self.build_in_slices = None if served.build_in_slices is None else partial(self._noted, "build_in_slices")

    def _noted(self, build: str, response: Any, correlation_id: int) -> Any:
        if self.event.error is None:
            self._ring.end(self.event, response)
        return getattr(self._plain, build)(response, correlation_id)

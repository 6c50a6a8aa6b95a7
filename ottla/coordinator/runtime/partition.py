"""One partition of a coordinator topic, as the shell sees it. What it holds is a `CoordinatorShard`.

The shell makes one object each time the broker becomes leader of the partition, and then:

1. calls `replay` (`replay_marker` for markers of transactions) for every record from log start to log end, in order;
2. calls `finish_loading`, or `fail_loading` when the log could not be read;
3. calls `step` for every event, one at a time, and performs all effects of a step before the next; after a step that
   has a `rest`, `go_on` until it has none;
4. calls `unload` when the broker is no longer leader. Late events are then harmless.

Requests may come at any time: before `finish_loading` and after `unload` they are refused as Kafka does.

Only records change what survives a restart: loading the log and serving requests replay them by the same code. A shard
without a timeline gets the records of its own appends when the high watermark has passed them. A shard with one gets
them as soon as they are appended; its `TimelineMap`s show them as committed later, and no longer if the append fails.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from ottla.coordinator.runtime.appends import IN_DOUBT, InFlight
from ottla.coordinator.runtime.effects import (
    AppendCompleted,
    AppendFailed,
    CoordinatorRecord,
    Effect,
    TransactionCompleted,
)
from ottla.coordinator.runtime.step_context import AfterAppend, StepContext
from ottla.coordinator.runtime.timeline import Timeline
from ottla.protocol.errors import ErrorCode

OFFSET_UNKNOWN: Final = -1
"""Of a record that is replayed when it is appended."""
RECORDS_PER_SLICE: Final = 256
"""To replay one takes less than 10 µs."""


class CoordinatorShard(Protocol):
    """What the partitions of one coordinator topic hold, and the events that they know. Kafka's name for it."""

    @property
    def context(self) -> StepContext: ...

    @property
    def timeline(self) -> Timeline | None:
        """None: records are replayed when they are committed."""
        ...

    @property
    def requests(self) -> Mapping[type, Callable[[Any, Any], None]]:
        """What serves each type of request, called with the context and the request."""
        ...

    @property
    def events(self) -> Mapping[type, Callable[[Any, Any], None]]:
        """What handles each other type of event, `TimerFired` among them. They are dropped unless the log is loaded."""
        ...

    def request_error(self, request: Any) -> ErrorCode | None:
        """Why the request is refused before anything else is looked at."""
        ...

    def refusal(self, request: Any, error: ErrorCode) -> object:
        """The result for a request that is not served."""
        ...

    def replay(self, key: bytes, value: bytes | None, record_offset: int, producer_id: int | None = None) -> None:
        """Apply one record; `producer_id` is that of a transactional batch. Raises `DecodeError`."""
        ...

    def replay_marker(self, producer_id: int, *, commit: bool) -> Iterator[None]:
        """Apply the marker that ends a transaction; yields after each slice."""
        ...

    def on_committed(self, owner: str) -> None:
        """Records of this owner have been committed: what exists only because of them exists now, what they remove does
        not any more."""
        ...

    def on_elected(self) -> Iterator[None]:
        """The log is loaded: make what it says, and start its timers. Yields after each slice."""
        ...

    def on_resigned(self) -> None:
        """Answer what is parked, and cancel all timers."""
        ...

    def clear(self) -> None:
        """Forget everything."""
        ...


class Phase(Enum):
    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()
    """What the log says could not be read. A coordinator that knows half would hand out -1 for committed offsets."""
    UNLOADED = auto()


_REFUSALS: Final = {
    Phase.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    Phase.ACTIVE: None,
    Phase.FAILED: ErrorCode.NOT_COORDINATOR,
    Phase.UNLOADED: ErrorCode.NOT_COORDINATOR,
}

S = TypeVar("S", bound=CoordinatorShard)


class CoordinatorPartition(Generic[S]):
    def __init__(self, shard: S, *, batch_bytes_max: Callable[[], int] | None = None) -> None:
        """`batch_bytes_max` says what the log takes in one batch; None: any."""
        self.shard = shard
        self.phase = Phase.LOADING
        self._context = shard.context
        if batch_bytes_max is not None:
            self._context.batch_bytes_max = batch_bytes_max
        # Of the running step; true while `go_on` is to be called.
        self.rest = shard.context.rest
        self._requests = shard.requests
        self._timeline = shard.timeline
        # The slices of `finish_loading`.
        self._election: Iterator[None] | None = None
        if self._timeline is not None:
            self._context.on_append = self._replay_at_append

    # Loading and unloading

    def replay(self, key: bytes, value: bytes | None, record_offset: int, producer_id: int | None = None) -> None:
        """Load one record. `producer_id` is given for the records of a transactional batch: they wait for its marker.

        Raises `DecodeError` for a record that breaks its layout: then call `fail_loading`.
        """
        assert self.phase is Phase.LOADING, f"a record to load in phase {self.phase.name}"
        self.shard.replay(key, value, record_offset, producer_id)

    def replay_marker(self, producer_id: int, *, commit: bool) -> Iterator[None]:
        """Load the marker that ends a transaction, in slices: the caller takes all before the next record."""
        assert self.phase is Phase.LOADING, f"a marker to load in phase {self.phase.name}"
        return self.shard.replay_marker(producer_id, commit=commit)

    def finish_loading(self, now_ms: int, wall_ms: int) -> list[Effect]:
        """A slice of making what the log says: call it until the phase is ACTIVE. The list is the caller's.

        Until then requests are refused, and other events, those of timers too, must wait. As after a step there may be
        a `rest`."""
        assert self.phase is Phase.LOADING, f"loading ends in phase {self.phase.name}"
        self._context.begin(now_ms, wall_ms)
        if self._election is None:
            self._election = self.shard.on_elected()
        for _ in self._election:
            break
        else:
            self.phase = Phase.ACTIVE
        return self._context.effects

    def fail_loading(self) -> None:
        """Also when `finish_loading` has raised: then the shard may have made a part of what it holds."""
        self.phase = Phase.FAILED
        self._clear()

    def unload(self, now_ms: int, wall_ms: int) -> list[Effect]:
        self.phase = Phase.UNLOADED
        context = self._context
        context.begin(now_ms, wall_ms)
        context.is_unloading = True
        context.finish()
        self.shard.on_resigned()
        for after in context.appends.close():
            after.failed(context, ErrorCode.NOT_COORDINATOR)
        context.finish()
        self._clear()
        return context.effects

    def _clear(self) -> None:
        self.rest.clear()
        self.shard.clear()
        if self._timeline is not None:
            self._timeline.clear()

    # Events

    def step(self, event: object, now_ms: int, wall_ms: int) -> list[Effect]:
        """What is to be done about `event`. The list is the caller's."""
        context = self._context
        context.begin(now_ms, wall_ms)
        handler = self._requests.get(type(event))
        if handler is None:
            if self.phase is Phase.ACTIVE:
                self._handle_event(event)
            return context.effects
        error = self.shard.request_error(event) or _REFUSALS[self.phase]
        if error is None:
            handler(context, event)
        else:
            context.reply(cast("Any", event).token, self.shard.refusal(event, error))
        return context.effects

    def go_on(self) -> list[Effect]:
        """What is to be done about the next slice of the event that `step` got last. The list is the caller's."""
        self._context.go_on()
        return self._context.effects

    def _handle_event(self, event: object) -> None:
        match event:
            case AppendCompleted():
                self._append_completed(event)
            case AppendFailed():
                self._append_failed(event)
            case TransactionCompleted(producer_id, commit):
                self._context.run(self.shard.replay_marker(producer_id, commit=commit))
            case _:
                self.shard.events[type(event)](self._context, event)

    def _append_completed(self, event: AppendCompleted) -> None:
        context = self._context
        in_flight = context.appends.complete(event.append_id)
        if in_flight is None:
            return
        if self._timeline is not None:
            self._timeline.commit(event.append_id)
        context.run(self._complete(in_flight, event.base_offset))

    def _complete(self, in_flight: InFlight[AfterAppend], base_offset: int) -> Iterator[None]:
        context = self._context
        if self._timeline is None:
            for number, (record, record_offset) in enumerate(context.appends.newest(in_flight, base_offset), 1):
                self.shard.replay(record.key, record.value, record_offset, in_flight.producer_id)
                if not number % RECORDS_PER_SLICE:
                    yield
        self.shard.on_committed(in_flight.owner)
        if in_flight.after is not None:
            in_flight.after.completed(context)

    def _append_failed(self, event: AppendFailed) -> None:
        after = self._context.appends.fail(event.append_id, event.error)
        if self._timeline is not None and event.error not in IN_DOUBT:
            self._timeline.revert(event.append_id)
        if after is not None:
            after.failed(self._context, event.error)

    def _replay_at_append(self, append_id: int, records: Sequence[CoordinatorRecord]) -> None:
        assert self._timeline is not None, "only state on a timeline changes at the append"
        with self._timeline.writing(append_id):
            for record in records:
                self.shard.replay(record.key, record.value, OFFSET_UNKNOWN)

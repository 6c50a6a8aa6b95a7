"""The metadata store as another machine: its answers take time, get lost, or do not come while the way to it is cut.

`RemoteSession` behaves as the store on etcd does: reads and commits go out one at a time, in the order of the calls; a
call that was not answered in time gets `Unavailable`, and what it asked for may have been done, or may be done later; a
watch delivers everything once and in order, later if it must, and sometimes that it has missed something. Leases expire
by the store's own clock, whatever their holders do.
"""

import contextvars
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.broker.loop_wheel import LoopWheel
from ottla.cluster.embedded import EmbeddedStore
from ottla.cluster.store import (
    Change,
    CommitResult,
    Compacted,
    Expect,
    Granted,
    KeepAliveResult,
    LeaseLost,
    Snapshot,
    Unavailable,
    Watch,
    WatchEvent,
)
from tests.simulation.cluster.shared_store import OursIn, write_of_others
from tests.simulation.draws import randint
from tests.simulation.links import Links
from tests.simulation.loop import SimulationLoop, VirtualClock
from tests.simulation.trace import Trace

STORE_HOST = "store"
TIMEOUT_MS = 3_000


@dataclass
class StoreConditions:
    """How the way to the store behaves."""

    latency_us: tuple[int, int] = (100, 2_000)
    loses_answers: float = 0.0
    forgets_history: float = 0.0
    """How likely a watch that was held up has to begin again."""


class StoreMachine:
    """The store and its clock; make it outside of any process."""

    def __init__(self, loop: SimulationLoop, links: Links, rng: random.Random, trace: Trace) -> None:
        self.loop = loop
        self.links = links
        self.rng = rng
        self.trace = trace
        self.conditions = StoreConditions()
        self.context = contextvars.copy_context()
        clock = VirtualClock(loop)
        wheel = LoopWheel(loop, clock, lambda: None, _fail)
        self._whole = EmbeddedStore(clock=clock, wheel=wheel, post=self._post)
        # What concerns the cluster.
        self.store = OursIn(self._whole)

    def session(self, host: str, context: contextvars.Context) -> "RemoteSession":
        """For a broker on this host; its callbacks run in this context, its process."""
        return RemoteSession(self, host, context)

    def write_of_others(self) -> None:
        self.loop.call_soon(write_of_others, self._whole, context=self.context)

    def later(self, action: Callable[[], None]) -> None:
        """On the store's side, after the time that a way takes."""
        self.loop.call_at_us(self.loop.now_us + self.draw_latency_us(), action, context=self.context)

    def draw_latency_us(self) -> int:
        return randint(self.rng, *self.conditions.latency_us)

    def _post(self, action: Callable[[], None]) -> None:
        self.loop.call_soon(action, context=self.context)


def _fail(error: Exception) -> None:
    raise error


class _Call:
    """One request, until its answer or the caller's timeout."""

    def __init__(self, session: "RemoteSession", ask: Callable[..., None], done: Callable[[Any], None]) -> None:
        self._session = session
        self._machine = session.machine
        self._ask = ask
        self._done = done
        self._over = False
        loop, context = self._machine.loop, session.context
        self._deadline = loop.call_later(TIMEOUT_MS / 1000, self._give_up, "no answer in time", context=context)
        if not self._machine.links.is_cut(session.host, STORE_HOST):
            self._machine.later(self._arrive)
        elif self._machine.rng.random() < 0.3:
            # Sent again by the kernel, maybe long after the caller has given up.
            session.held_up.append(self._arrive)

    def _arrive(self) -> None:
        self._ask(self._answer)

    def _answer(self, result: Any) -> None:
        machine = self._machine
        if machine.links.is_cut(STORE_HOST, self._session.host):
            return
        if machine.rng.random() < machine.conditions.loses_answers:
            result = Unavailable("the connection was lost")
        when_us = machine.loop.now_us + machine.draw_latency_us()
        machine.loop.call_at_us(when_us, self._end, result, context=self._session.context)

    def _give_up(self, why: str) -> None:
        self._end(Unavailable(why))

    def _end(self, result: Any) -> None:
        if self._over:
            return
        self._over = True
        self._deadline.cancel()
        self._machine.trace.note("store answers", self._session.host, type(result).__name__)
        self._session.ended(self, self._done, result)


class RemoteSession:
    """One broker's `MetadataStore`."""

    def __init__(self, machine: StoreMachine, host: str, context: contextvars.Context) -> None:
        self.machine = machine
        self.host = host
        self.context = context
        # On a way that is cut; they arrive when it has healed.
        self.held_up: list[Callable[[], None]] = []
        self._session = machine.store.session()
        self._queue: deque[tuple[Callable[..., None], Callable[[Any], None]]] = deque()
        self._under_way: _Call | None = None
        self._watches: list[RemoteWatch] = []
        self._closed = False
        machine.links.when_healed.append(self._healed)

    # MetadataStore

    def read(self, prefix: str, done: Callable[[Snapshot | Unavailable], None]) -> None:
        self._in_order(lambda answer: self._session.read(prefix, answer), done)

    def commit(
        self, expected: Sequence[Expect], changes: Sequence[Change], done: Callable[[CommitResult], None]
    ) -> None:
        self._in_order(lambda answer: self._session.commit(expected, changes, answer), done)

    def watch(self, prefix: str, from_revision: int, deliver: Callable[[WatchEvent], None]) -> Watch:
        watch = RemoteWatch(self, deliver)
        self._watches.append(watch)
        if self._closed:
            watch.cancel()
        else:
            self.machine.later(lambda: watch.begin(prefix, from_revision))
        return watch

    def grant(self, ttl_ms: int, done: Callable[[Granted | Unavailable], None]) -> None:
        self._beside(lambda answer: self._session.grant(ttl_ms, answer), done)

    def keep_alive(self, lease_id: int, done: Callable[[KeepAliveResult], None]) -> None:
        self._beside(lambda answer: self._session.keep_alive(lease_id, answer), done)

    def revoke(self, lease_id: int, done: Callable[[LeaseLost | Unavailable], None]) -> None:
        self._beside(lambda answer: self._session.revoke(lease_id, answer), done)

    def close(self) -> None:
        """What was sent is done all the same."""
        self._closed = True
        self._queue.clear()
        for watch in self._watches:
            watch.cancel()

    # Calls.

    def ended(self, call: _Call, done: Callable[[Any], None], result: Any) -> None:
        if self._closed:
            return
        if call is self._under_way:
            self._under_way = None
            self._next()
        done(result)

    def _beside(self, ask: Callable[..., None], done: Callable[[Any], None]) -> None:
        if not self._closed:
            _Call(self, ask, done)

    def _in_order(self, ask: Callable[..., None], done: Callable[[Any], None]) -> None:
        if not self._closed:
            self._queue.append((ask, done))
            self._next()

    def _next(self) -> None:
        if self._under_way is None and self._queue:
            self._under_way = _Call(self, *self._queue.popleft())

    def _healed(self) -> None:
        if not self.machine.links.is_cut(self.host, STORE_HOST):
            held_up, self.held_up = self.held_up, []
            for arrive in held_up:
                self.machine.later(arrive)
        for watch in self._watches:
            watch.healed()


class RemoteWatch:
    """Each event arrives after the one before it, and none while the way is cut."""

    def __init__(self, session: RemoteSession, deliver: Callable[[WatchEvent], None]) -> None:
        self._session = session
        self._machine = session.machine
        self._deliver = deliver
        self._watch: Watch | None = None
        self._held_up: list[WatchEvent] = []
        self._last_arrival_us = 0
        self._active = True

    def begin(self, prefix: str, from_revision: int) -> None:
        if self._active:
            self._watch = self._machine.store.watch(prefix, from_revision, self._saw)

    def cancel(self) -> None:
        self._active = False
        if self._watch is not None:
            self._watch.cancel()

    def healed(self) -> None:
        if not self._held_up or self._is_cut():
            return
        events, self._held_up = self._held_up, []
        if self._machine.rng.random() < self._machine.conditions.forgets_history:
            if self._watch is not None:
                self._watch.cancel()
            events = [Compacted(0)]
        for event in events:
            self._saw(event)

    def _is_cut(self) -> bool:
        links, host = self._machine.links, self._session.host
        return links.is_cut(STORE_HOST, host)

    def _saw(self, event: WatchEvent) -> None:
        if self._held_up or self._is_cut():
            self._held_up.append(event)
            return
        when_us = max(self._last_arrival_us, self._machine.loop.now_us + self._machine.draw_latency_us())
        self._last_arrival_us = when_us
        self._machine.loop.call_at_us(when_us, self._arrive, event, context=self._session.context)

    def _arrive(self, event: WatchEvent) -> None:
        if self._active:
            self._machine.trace.note("watch", self._session.host, type(event).__name__, event.revision)
            self._deliver(event)

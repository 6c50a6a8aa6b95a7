"""The metadata store as one broker of a process reaches it, by two ways: to the store and back.

While a way is cut, what is sent gets lost: its call is answered `Unavailable` after `LOST_MS`, as by a client of a
store across the network, whether the store has done it or not. A watch misses nothing: it goes on where it was when the
way is open again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.cluster.store import (
    Change,
    CommitResult,
    Expect,
    Granted,
    KeepAliveResult,
    LeaseLost,
    MetadataStore,
    Snapshot,
    Unavailable,
    Watch,
    WatchEvent,
)
from ottla.testing.surroundings.ways import STORE, Place, Ways

LOST_MS: Final = 300
NO_ANSWER: Final = Unavailable("the link to it is cut")

Action = Callable[[], None]


class Lane:
    """What goes one way, in order."""

    def __init__(self, ways: Ways, source: Place, target: Place) -> None:
        self._ways, self._source, self._target = ways, source, target
        self._loop = asyncio.get_running_loop()
        # With the moment at which each is due; None: when the way is open again.
        self._waiting: deque[tuple[float | None, Action]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.is_closed = False
        ways.when_changed.append(self._ways_changed)

    def send(self, action: Action, lost: Action | None = None) -> None:
        """`lost` comes later in place of an action that is lost; None: it is not lost, it waits."""
        way = self._ways.between(self._source, self._target)
        if not self._waiting and not way.is_cut and not way.delay_ms and not self._is_held:
            action()
            return
        now = self._loop.time()
        if not way.is_cut:
            self._waiting.append((now + way.delay_ms / 1000, action))
        elif lost is not None:
            self._waiting.append((now + LOST_MS / 1000, lost))
        else:
            self._waiting.append((None, action))
        self._deliver()

    def close(self) -> None:
        self.is_closed = True
        self._waiting.clear()
        self._ways.when_changed.remove(self._ways_changed)

    @property
    def _is_held(self) -> bool:
        return self._ways.is_held(self._source, self._target)

    def _ways_changed(self) -> None:
        way = self._ways.between(self._source, self._target)
        if not way.is_cut and not way.delay_ms:
            self._waiting = deque((0.0, action) for _, action in self._waiting)
        self._deliver()

    def _deliver(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and not self._is_held:
            at, action = self._waiting[0]
            if at is None:
                return
            wait_s = at - self._loop.time()
            if wait_s > 0:
                self._timer = self._loop.call_later(wait_s, self._deliver)
                return
            self._waiting.popleft()
            action()


class LinkStore:
    """`ottla.cluster.store.MetadataStore` for one broker."""

    def __init__(self, session: MetadataStore, ways: Ways, node_id: int) -> None:
        self._session = session
        self._requests = Lane(ways, node_id, STORE)
        self._answers = Lane(ways, STORE, node_id)
        # Events are not lost, and must not hold up the answers behind them.
        self._events = Lane(ways, STORE, node_id)

    def read(self, prefix: str, done: Callable[[Snapshot | Unavailable], None]) -> None:
        self._ask(lambda answer: self._session.read(prefix, answer), done)

    def commit(
        self, expected: Sequence[Expect], changes: Sequence[Change], done: Callable[[CommitResult], None]
    ) -> None:
        self._ask(lambda answer: self._session.commit(expected, changes, answer), done)

    def watch(self, prefix: str, from_revision: int, deliver: Callable[[WatchEvent], None]) -> Watch:
        return LinkWatch(self._session, self._events, prefix, from_revision, deliver)

    def grant(self, ttl_ms: int, done: Callable[[Granted | Unavailable], None]) -> None:
        self._ask(lambda answer: self._session.grant(ttl_ms, answer), done)

    def keep_alive(self, lease_id: int, done: Callable[[KeepAliveResult], None]) -> None:
        self._ask(lambda answer: self._session.keep_alive(lease_id, answer), done)

    def revoke(self, lease_id: int, done: Callable[[LeaseLost | Unavailable], None]) -> None:
        self._ask(lambda answer: self._session.revoke(lease_id, answer), done)

    def close(self) -> None:
        for lane in (self._requests, self._answers, self._events):
            if not lane.is_closed:
                lane.close()
        self._session.close()

    def _ask(self, ask: Callable[[Callable[[Any], None]], None], done: Callable[[Any], None]) -> None:
        """`done` gets what it would be given without a link, or Unavailable."""

        def lost() -> None:
            done(NO_ANSWER)

        def answer(result: object) -> None:
            if not self._answers.is_closed:
                self._answers.send(lambda: done(result), lost)

        if not self._requests.is_closed:
            self._requests.send(lambda: ask(answer), lost)


class LinkWatch:
    """Begins at once; what it delivers comes by the way back."""

    def __init__(
        self,
        session: MetadataStore,
        events: Lane,
        prefix: str,
        from_revision: int,
        deliver: Callable[[WatchEvent], None],
    ) -> None:
        self._events = events
        self._deliver = deliver
        self._is_cancelled = False
        self._watch = session.watch(prefix, from_revision, self._send)

    def cancel(self) -> None:
        self._is_cancelled = True
        self._watch.cancel()

    def _send(self, event: WatchEvent) -> None:
        if not self._events.is_closed:
            self._events.send(lambda: self._arrived(event))

    def _arrived(self, event: WatchEvent) -> None:
        if not self._is_cancelled:
            self._deliver(event)

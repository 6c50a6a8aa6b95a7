"""Markers that wait for their turn to go to the leaders of their partitions, and those that wait to go there again.

A coordinator that takes over may have thousands of decided transactions, and one transaction thousands of partitions.
Each step of the loop handles a few orders and partitions; an order that has more of them waits behind the others. What
is sent again waits in the order of its time: one timer for each length of the wait.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, Protocol, TypeVar

from ottla.broker.runtime import Runtime
from ottla.coordinator.transactions.participants import Participant
from ottla.timer.wheel import TimerEntry

ORDERS_PER_STEP: Final = 32
"""A marker, and the record of the completion that follows it, take some 150 µs."""
PARTITIONS_PER_STEP: Final = 100
"""Of those that this broker leads: some 5 ms."""


class Divisible(Protocol):
    """Markers of one order."""

    @property
    def partitions(self) -> Sequence[Participant]: ...


M = TypeVar("M", bound=Divisible)


class _Round(Generic[M]):
    """What waits equally long, with the time when it is due; that rises."""

    __slots__ = ("queue", "timer")

    def __init__(self) -> None:
        self.queue: deque[tuple[int, M]] = deque()
        self.timer: TimerEntry | None = None


class MarkerTurns(Generic[M]):
    def __init__(self, runtime: Runtime, route: Callable[[M], None], some: Callable[[M, int, int], M]) -> None:
        """`route` gets at most PARTITIONS_PER_STEP partitions of an order at once; `some` gives the markers for those
        between two positions."""
        self._runtime = runtime
        self._route = route
        self._some = some
        # With the position of the first partition that has not been routed.
        self._ready: deque[tuple[M, int]] = deque()
        self._rounds: dict[int, _Round[M]] = {}
        self._is_awake = False

    def add(self, markers: M) -> None:
        """In a step of the loop to come."""
        self._ready.append((markers, 0))
        self._wake()

    def add_later(self, markers: M, wait_ms: int) -> None:
        waiting = self._rounds.get(wait_ms)
        if waiting is None:
            waiting = self._rounds[wait_ms] = _Round()
        waiting.queue.append((self._runtime.clock.now_ms() + wait_ms, markers))
        if waiting.timer is None:
            self._set_timer(waiting, wait_ms)

    def waiting(self) -> Iterator[tuple[M, int]]:
        """Each with how many of its partitions wait."""
        for markers, position in self._ready:
            yield markers, len(markers.partitions) - position
        for each in self._rounds.values():
            for _, markers in each.queue:
                yield markers, len(markers.partitions)

    def stop(self) -> None:
        self._ready.clear()
        for each in self._rounds.values():
            if each.timer is not None:
                each.timer.cancel()
        self._rounds.clear()

    def _wake(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self._runtime.soon(self._wake_up)

    def _wake_up(self) -> None:
        self._is_awake = False
        self._take_turn()

    def _set_timer(self, waiting: _Round[M], wait_ms: int) -> None:
        def fire() -> None:
            waiting.timer = None
            if not self._is_awake:
                self._take_turn()

        waiting.timer = self._runtime.schedule(wait_ms, fire)

    def _take_turn(self) -> None:
        now_ms = self._runtime.clock.now_ms()
        room = PARTITIONS_PER_STEP
        try:
            for _ in range(ORDERS_PER_STEP):
                found = self._next(now_ms)
                if found is None:
                    break
                markers, position = found
                end = min(position + room, len(markers.partitions))
                if end < len(markers.partitions):
                    self._ready.append((markers, end))
                self._route(self._some(markers, position, end))
                room -= end - position
                if not room:
                    break
        finally:
            self._prepare_next(now_ms)

    def _next(self, now_ms: int) -> tuple[M, int] | None:
        if self._ready:
            return self._ready.popleft()
        for each in self._rounds.values():
            if each.queue and each.queue[0][0] <= now_ms:
                return each.queue.popleft()[1], 0
        return None

    def _prepare_next(self, now_ms: int) -> None:
        if self._ready:
            self._wake()
        for each in self._rounds.values():
            if each.queue and each.timer is None:
                wait_ms = each.queue[0][0] - now_ms
                if wait_ms > 0:
                    self._set_timer(each, wait_ms)
                else:
                    self._wake()

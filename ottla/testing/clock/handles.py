"""The clock that tests talk to: `kafka.clock` blocks, `kafka_async.clock` is awaited.

    kafka.clock.freeze()
    fired = kafka.clock.advance("8d")
    assert [each.kind for each in fired] == ["session", ...]

Durations are seconds, a `timedelta`, or text: "500ms", "90s", "7d". Moments without a zone are UTC.
"""

from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from random import Random
from typing import Any, Protocol, TypeVar

from ottla.testing.clock.control import ClockControl, Jump, Pending
from ottla.testing.clock.included import checked_included
from ottla.testing.clock.sessions import SPARE, Sessions, checked_sessions
from ottla.testing.clock.timeline import Delta, moment, parse_delta, parse_forward, parse_moment
from ottla.testing.clock.walk import Fired
from ottla.testing.usage import checks_usage
from ottla.testing.worker import BrokerLoop
from ottla.timer.clock import TimerKind

T = TypeVar("T")


class ClockOwner(Protocol):
    @property
    def loop(self) -> BrokerLoop: ...

    @property
    def clock(self) -> ClockControl: ...


@checks_usage
class BrokerClock:
    """The broker time of all brokers of a handle. `BrokerClockAsync` is the same for coroutines."""

    def __init__(self, bed: ClockOwner) -> None:
        self._bed = bed

    def now(self) -> datetime:
        """The wall time of brokers, in UTC, without the skew of any."""
        return self._call(lambda clock: moment(clock.timeline.wall_ms()))

    def advance(self, delta: Delta, *, sessions: Sessions = SPARE, every: bool = False) -> list[Fired]:
        """Lets broker time pass, from one timer to the next, and gives the timers that ran, in their order. 0 runs what
        is due.

        `sessions`: which members of groups live on. "spare": those whose connection is open live on, as though they
        had heartbeated all along; "expire": all end whose time is over; a set of member ids or client ids: these end.
        `every`: periodic jobs run each time that they would have, not only at each stop and at the end. Raises
        ValueError."""
        delta_ms = parse_forward(delta)
        jump = self._bed.loop.run(self._bed.clock.advance(delta_ms, checked_sessions(sessions), every=every))
        return self._follow(jump)

    def run_next(self, kind: str | None = None, *, sessions: Sessions = SPARE) -> list[Fired]:
        """Goes to the next timer that comes to something, of a kind (`ottla.timer.clock`) or of any that is no periodic
        job, and no further. Gives what ran; nothing if nothing is pending. Raises ValueError."""
        wanted = None if kind is None else TimerKind(kind)
        return self._follow(self._bed.loop.run(self._bed.clock.run_next(wanted, checked_sessions(sessions))))

    def freeze(self, at: datetime | None = None) -> None:
        """Broker time stands still, `at` a wall time or where it is; what is due still runs."""
        at_ms = None if at is None else parse_moment(at)
        self._call(lambda clock: clock.freeze(at_ms))
        if at_ms is not None:
            self._bed.clock.travellers.move_to(moment(at_ms))

    def resume(self) -> None:
        """It runs again, from where it is."""
        self._call(ClockControl.resume)

    @contextmanager
    def frozen(self, at: datetime | None = None) -> Generator["BrokerClock"]:
        """Frozen for the block; behind it broker time is the machine's again."""
        self.freeze(at)
        try:
            yield self
        finally:
            self.reset()

    @property
    def rate(self) -> float:
        """Seconds of broker time in a second of the machine's. Sessions of living clients are spared from it."""
        return self._call(lambda clock: clock.timeline.rate)

    @rate.setter
    def rate(self, rate: float) -> None:
        self.set_rate(rate)

    def set_rate(self, rate: float, *, sessions: Sessions = SPARE) -> None:
        """With "expire", 20 at most. Raises ValueError."""
        checked = checked_sessions(sessions)
        self._call(lambda clock: clock.set_rate(rate, checked))

    def set(self, when: datetime) -> None:
        """Sets the wall clock, backwards too. Deadlines stay where they are; jobs that compare timestamps see it."""
        when_ms = parse_moment(when)
        self._call(lambda clock: clock.set_wall(when_ms))
        self._bed.clock.travellers.move_to(moment(when_ms))

    def skew(self, node: int, delta: Delta) -> None:
        """The wall clock of one broker is ahead of the others', or behind. Raises ValueError."""
        delta_ms = parse_delta(delta)
        self._call(lambda clock: clock.skew(node, delta_ms))

    def drift(self, node: int, rate: float) -> None:
        """From now on the wall clock of one broker runs at so many times the others'. Raises ValueError."""
        self._call(lambda clock: clock.drift(node, rate))

    def include(self, names: Iterable[str]) -> None:
        """What goes by broker time too, until `reset`: "tokens", expiry of access tokens and sessions of logins, and
        "replication", `replica.lag.time.max.ms` and the balance of leaders. Without them they go by the machine's time,
        as is all that is not named. Raises ValueError."""
        checked = checked_included(names)
        self._call(lambda clock: clock.include(checked))

    @property
    def included(self) -> frozenset[str]:
        return self._call(lambda clock: clock.included)

    def pending(self) -> list[Pending]:
        """The timers that are still to run, by deadline."""
        return self._call(ClockControl.pending)

    def reset(self) -> None:
        """Broker time is the machine's again; what has passed has passed."""
        self._call(ClockControl.reset)

    @property
    def ties(self) -> Random | None:
        """Shuffles timers of one deadline. None: they run by node id, then as they were set."""
        return self._bed.clock.ties

    @ties.setter
    def ties(self, ties: Random | None) -> None:
        self._bed.clock.ties = ties

    def follow(self, traveller: Any) -> None:
        """Moves an object of time-machine or freezegun along, until the clock is reset. Raises TypeError."""
        self._bed.clock.travellers.add(traveller)

    def _call(self, action: Callable[[ClockControl], T]) -> T:
        return self._bed.loop.call(action, self._bed.clock)

    def _follow(self, jump: Jump) -> list[Fired]:
        self._bed.clock.travellers.move_by(jump.passed_ms)
        return jump.fired


@checks_usage
class BrokerClockAsync:
    """Each method is that of `BrokerClock` with the same name, to await. `ties` and `follow` do not wait."""

    def __init__(self, bed: ClockOwner) -> None:
        self._bed = bed
        self._clock = BrokerClock(bed)

    async def now(self) -> datetime:
        return await self._call(lambda clock: moment(clock.timeline.wall_ms()))

    async def advance(self, delta: Delta, *, sessions: Sessions = SPARE, every: bool = False) -> list[Fired]:
        delta_ms = parse_forward(delta)
        jump = await self._bed.loop.wait(self._bed.clock.advance(delta_ms, checked_sessions(sessions), every=every))
        self._bed.clock.travellers.move_by(jump.passed_ms)
        return jump.fired

    async def run_next(self, kind: str | None = None, *, sessions: Sessions = SPARE) -> list[Fired]:
        wanted = None if kind is None else TimerKind(kind)
        jump = await self._bed.loop.wait(self._bed.clock.run_next(wanted, checked_sessions(sessions)))
        self._bed.clock.travellers.move_by(jump.passed_ms)
        return jump.fired

    async def freeze(self, at: datetime | None = None) -> None:
        at_ms = None if at is None else parse_moment(at)
        await self._call(lambda clock: clock.freeze(at_ms))
        if at_ms is not None:
            self._bed.clock.travellers.move_to(moment(at_ms))

    async def resume(self) -> None:
        await self._call(ClockControl.resume)

    @asynccontextmanager
    async def frozen(self, at: datetime | None = None) -> AsyncGenerator["BrokerClockAsync"]:
        await self.freeze(at)
        try:
            yield self
        finally:
            await self.reset()

    async def rate(self) -> float:
        return await self._call(lambda clock: clock.timeline.rate)

    async def set_rate(self, rate: float, *, sessions: Sessions = SPARE) -> None:
        checked = checked_sessions(sessions)
        await self._call(lambda clock: clock.set_rate(rate, checked))

    async def set(self, when: datetime) -> None:
        when_ms = parse_moment(when)
        await self._call(lambda clock: clock.set_wall(when_ms))
        self._bed.clock.travellers.move_to(moment(when_ms))

    async def skew(self, node: int, delta: Delta) -> None:
        delta_ms = parse_delta(delta)
        await self._call(lambda clock: clock.skew(node, delta_ms))

    async def drift(self, node: int, rate: float) -> None:
        await self._call(lambda clock: clock.drift(node, rate))

    async def include(self, names: Iterable[str]) -> None:
        checked = checked_included(names)
        await self._call(lambda clock: clock.include(checked))

    async def included(self) -> frozenset[str]:
        return await self._call(lambda clock: clock.included)

    async def pending(self) -> list[Pending]:
        return await self._call(ClockControl.pending)

    async def reset(self) -> None:
        await self._call(ClockControl.reset)

    @property
    def ties(self) -> Random | None:
        return self._clock.ties

    @ties.setter
    def ties(self, ties: Random | None) -> None:
        self._clock.ties = ties

    def follow(self, traveller: Any) -> None:
        self._clock.follow(traveller)

    async def _call(self, action: Callable[[ClockControl], T]) -> T:
        return await self._bed.loop.wait_for_call(action, self._bed.clock)

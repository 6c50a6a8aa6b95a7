"""Waits: a condition is looked at once, and then after every event of the brokers, until it holds or its time is over.

Nothing polls. The look and the registration are one step of the loop, so that no event comes between them; and while
nothing waits, the ends of events are the brokers' own functions. Deadlines are real time, whatever a test does to the
clock of its broker.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple, Protocol

from ottla.broker.assembly import Parts
from ottla.broker.runtime import LoopRuntime, complete

DEADLINE_FACTOR: Final = "OTTLA_DEADLINE_FACTOR"
"""The name of the environment variable that multiplies all deadlines, for machines under load."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a condition does not hold: how things stand, what is missing, and what may be behind it."""

    state: str
    missing: Sequence[str] = ()
    hints: Sequence[str] = ()


class WaitEnd(NamedTuple):
    """When waits are over that say no time of their own, and what may be behind any of them that is over."""

    deadline_s: float = 5.0
    hints: Callable[[], Sequence[str]] = tuple


USUAL_END: Final = WaitEnd()


class Condition(Protocol):
    @property
    def wanted(self) -> str:
        """What is waited for, as the end of "it was not so: …"."""
        ...

    def is_met(self) -> bool: ...

    def explain(self) -> Explanation: ...


class DeadlineExceeded(TimeoutError):
    """A wait was over before its condition held. Its text says all that its fields do."""

    def __init__(self, wanted: str, within_s: float, why: Explanation) -> None:
        self.wanted = wanted
        self.within_s = within_s
        self.state = why.state
        self.missing = tuple(why.missing)
        self.hints = tuple(why.hints)
        super().__init__(self._text())

    def _text(self) -> str:
        lines = [f"{self.wanted} within {self.within_s:.1f} s", f"  now      {self.state}"]
        lines += [f"  missing  {each}" for each in self.missing]
        lines += [f"  hint     {each}" for each in self.hints]
        return "\n".join(lines)


class _Look(Protocol):
    def look(self) -> None: ...


@dataclass(eq=False, slots=True)
class _Watch:
    """A function that is called after every event."""

    look: Callable[[], None]


@dataclass(eq=False, slots=True)
class _Waiter:
    """A condition, and the future that its wait ends with."""

    condition: Condition
    met: "asyncio.Future[None]" = field(repr=False)

    def look(self) -> None:
        if self.met.done():
            return
        try:
            if self.condition.is_met():
                self.met.set_result(None)
        except Exception as error:
            self.met.set_exception(error)


class Waits:
    """Everything here runs on the loop of the brokers."""

    def __init__(self, hints: Callable[[], Sequence[str]] = tuple) -> None:
        """`hints`: what may be behind any wait that is over."""
        self._hints = hints
        self._waiters: dict[_Look, None] = {}
        self._watches: dict[Callable[[], None], _Watch] = {}
        # The end of an event of each broker that runs, and what takes its place while something waits.
        self._plain: dict[LoopRuntime, Callable[[], None]] = {}
        self._looking: dict[LoopRuntime, Callable[[], None]] = {}
        self._is_looking = False

    def attach(self, parts: Parts) -> None:
        """To a broker that has started."""
        runtime = parts.runtime
        plain = runtime.end_event
        self._plain = {each: end for each, end in self._plain.items() if each.is_serving}
        self._plain[runtime] = plain
        self._looking[runtime] = partial(self._end_event, plain)
        if self._waiters:
            self._install()

    async def wait(self, condition: Condition, within_s: float) -> None:
        """At most so long, times the factor of the environment. Raises DeadlineExceeded, and what the condition
        raises."""
        if condition.is_met():
            return
        loop = asyncio.get_running_loop()
        waiter = _Waiter(condition, loop.create_future())
        over: asyncio.Future[None] = loop.create_future()
        waits_s = max(within_s, 0) * deadline_factor()
        timer = loop.call_later(waits_s, complete, over, None)
        self._waiters[waiter] = None
        self._install()
        try:
            await asyncio.wait((waiter.met, over), return_when=asyncio.FIRST_COMPLETED)
            waiter.look()
            if not waiter.met.done():
                why = condition.explain()
                why = replace(why, hints=(*why.hints, *self._hints()))
                raise DeadlineExceeded(condition.wanted, waits_s, why)
            waiter.met.result()
        finally:
            timer.cancel()
            over.cancel()
            self._remove(waiter)

    def watch(self, look: Callable[[], None]) -> None:
        """`look` is called after every event, until `unwatch`."""
        watch = self._watches[look] = _Watch(look)
        self._waiters[watch] = None
        self._install()

    def unwatch(self, look: Callable[[], None]) -> None:
        self._remove(self._watches.pop(look))

    def _remove(self, waiter: _Look) -> None:
        del self._waiters[waiter]
        if not self._waiters:
            self._uninstall()

    def _install(self) -> None:
        for runtime, plain in self._plain.items():
            if runtime.end_event is plain:
                runtime.at_end_of_event(self._looking[runtime])

    def _uninstall(self) -> None:
        for runtime, plain in self._plain.items():
            # One that has stopped has no end of event any more.
            if runtime.end_event is self._looking[runtime]:
                runtime.at_end_of_event(plain)

    def _end_event(self, plain: Callable[[], None]) -> None:
        plain()
        self.look()

    def look(self) -> None:
        """At all conditions that are waited for."""
        if self._is_looking:
            return
        self._is_looking = True
        try:
            for waiter in list(self._waiters):
                waiter.look()
        finally:
            self._is_looking = False


def deadline_factor() -> float:
    """Of the environment; 1 without."""
    return float(os.environ.get(DEADLINE_FACTOR) or 1)

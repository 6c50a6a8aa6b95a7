"""What is notified of the facts about groups: the log, at the level that a fact names, and the callbacks that a user or
another part of the broker has handed in. One that raises harms no other.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar, TypeVarTuple

from ottla.broker.logging import LazyLog
from ottla.broker.runtime import Runtime
from ottla.coordinator.facts import Fact
from ottla.timer.wheel import TimerEntry

DEADLINE_MS = "_deadline_ms"
# How long facts wait to be handed on if no one asks for them.
NOTED_MS_MAX = 1_000
# A third of a millisecond.
FACTS_PER_STEP = 256

T = TypeVar("T")
More = TypeVarTuple("More")


class ObserverFailures:
    """What observers raised. Facts come thousands a second: a failure is logged once for each observer and type of what
    it was notified of."""

    def __init__(self, log: LazyLog) -> None:
        self._log = log
        # By id, for a callable need not be hashable; an id stays its own while the observer is kept.
        self._logged: set[tuple[int, type]] = set()

    def log_once(self, observer: Callable[..., object], kind: type) -> None:
        if (id(observer), kind) in self._logged:
            return
        self._logged.add((id(observer), kind))
        self._log.exception("an observer failed", observer=_name_of(observer), notified_of=kind.__name__)


class Observers(Generic[T, *More]):
    def __init__(self, log: LazyLog) -> None:
        self.is_empty = True
        self._observers: list[Callable[[T, *More], object]] = []
        self._failures = ObserverFailures(log)

    def append(self, observer: Callable[[T, *More], object]) -> None:
        self._observers.append(observer)
        self.is_empty = False

    def notify(self, what: T, *more: *More) -> None:
        """Calls each observer, in the order in which they were appended. `more` is known about it."""
        for observer in self._observers:
            try:
                observer(what, *more)
            except Exception:
                self._failures.log_once(observer, type(what))


class NotedFacts(list[Any]):
    """Facts, each with the time of its step behind it, for an observer that need not know at once: they are handed on
    when it asks, and a second later at most.

    Who notes a fact calls `begin` if none is noted yet. It is a list itself, and a flat one, because a rebalance has
    facts by the dozen: so a request costs no more than the note (docs/benchmarks.md)."""

    def __init__(self, runtime: Runtime, observer: Callable[[Fact, int], object]) -> None:
        super().__init__()
        self._runtime = runtime
        self._observer = observer
        self._failures = ObserverFailures(runtime.log)
        # Until all that it is for have been handed on.
        self._timer: TimerEntry | None = None

    def begin(self) -> None:
        if self._timer is None:
            self._timer = self._runtime.schedule(NOTED_MS_MAX, self._hand_on_some)

    def end(self) -> None:
        """No fact will be noted any more."""
        self.hand_on()
        if self._timer is not None:
            self._timer.cancel()

    def hand_on(self, most: int | None = None) -> None:
        """All of them, or the oldest."""
        end = None if most is None else 2 * most
        some = self[:end]
        del self[:end]
        observer = self._observer
        each: Iterator[Any] = iter(some)
        for fact, now_ms in zip(each, each, strict=True):
            try:
                observer(fact, now_ms)
            except Exception:
                self._failures.log_once(observer, fact.__class__)

    def _hand_on_some(self) -> None:
        """There may be very many: a step of the loop takes so many."""
        self.hand_on(FACTS_PER_STEP)
        if self:
            self._runtime.soon(self._hand_on_some)
        else:
            self._timer = None


def _name_of(observer: object) -> str:
    return getattr(observer, "__qualname__", None) or type(observer).__qualname__


def log_fact(log: LazyLog, fact: Fact, now_ms: int, wall_ms: int) -> None:
    """One line, at the level that the class of the fact names; none where it names none.

    The line's event is the name of the class, its fields are those of the fact. A deadline, which a fact has by the
    clock that is never set, is written by the clock on the wall."""
    if fact.level is not None and log.writes(fact.level):
        write = log.warning if fact.level == "warning" else log.info
        write(type(fact).__name__, **_fields(fact, wall_ms - now_ms))


def _fields(fact: Fact, ahead_ms: int) -> dict[str, object]:
    values = {field.name: getattr(fact, field.name) for field in fields(fact)}
    said: dict[str, object] = {}
    for name, value in values.items():
        if name.endswith(DEADLINE_MS) and isinstance(value, int):
            said[name.removesuffix("_ms")] = _wall_time(value + ahead_ms)
        else:
            said[name] = str(value) if isinstance(value, str) else value
    return said


def _wall_time(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

"""What is notified of the facts about groups: the log, at the level that a fact names, and the callbacks that a user or
another part of the broker has handed in. One that raises harms no other.
"""

from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime
from typing import Generic, TypeVar, TypeVarTuple

from ottla.broker.logging import LazyLog
from ottla.coordinator.facts import Fact

DEADLINE_MS = "_deadline_ms"
# Facts that wait to be counted: a third of a millisecond.
NOTED_MAX = 256

T = TypeVar("T")
More = TypeVarTuple("More")


class Observers(Generic[T, *More]):
    def __init__(self, log: LazyLog) -> None:
        self.is_empty = True
        self._log = log
        self._observers: list[Callable[[T, *More], object]] = []
        # Facts come thousands a second: a failure is logged once for each observer and type of what it was notified of.
        # By id, for a callable need not be hashable; an id stays its own while the observer is in the list.
        self._logged: set[tuple[int, type]] = set()

    def append(self, observer: Callable[[T, *More], object]) -> None:
        self._observers.append(observer)
        self.is_empty = False

    def notify(self, what: T, *more: *More) -> None:
        """Calls each observer, in the order in which they were appended. `more` is known about it."""
        for observer in self._observers:
            try:
                observer(what, *more)
            except Exception:
                self._log_once(observer, type(what))

    def _log_once(self, observer: Callable[[T, *More], object], kind: type) -> None:
        if (id(observer), kind) in self._logged:
            return
        self._logged.add((id(observer), kind))
        self._log.exception("an observer failed", observer=_name_of(observer), notified_of=kind.__name__)


class NotedFacts:
    """Facts with the times of their steps, for an observer that need not know at once: it is handed all of them when it
    asks, or when there are many. So a request costs no more than the note."""

    def __init__(self, log: LazyLog, observer: Callable[[Fact, int], object]) -> None:
        self.noted: list[tuple[Fact, int]] = []
        self._observers: Observers[Fact, int] = Observers(log)
        self._observers.append(observer)

    def hand_on(self) -> None:
        noted, self.noted = self.noted, []
        for fact, now_ms in noted:
            self._observers.notify(fact, now_ms)


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

"""Broker time of brokers in another process."""

from collections.abc import Iterable
from datetime import datetime
from random import Random
from typing import Any

from ottla.testing.clock.control import Pending
from ottla.testing.clock.handles import BrokerClock
from ottla.testing.clock.included import checked_included
from ottla.testing.clock.sessions import SPARE, Sessions, checked_sessions
from ottla.testing.clock.timeline import Delta, moment, moment_text, parse_delta, parse_forward, parse_moment
from ottla.testing.clock.walk import Fired
from ottla.testing.control.documents import ClockDocument, FiredList
from ottla.testing.remote.asking import RemoteControl
from ottla.testing.usage import checks_usage
from ottla.timer.clock import TimerKind


@checks_usage
class RemoteClock(BrokerClock):
    def __init__(self, control: RemoteControl) -> None:
        self._control = control

    def now(self) -> datetime:
        return datetime.fromisoformat(self._clock().now)

    def advance(self, delta: Delta, *, sessions: Sessions = SPARE, every: bool = False) -> list[Fired]:
        return self._moved("advance", {"by": f"{parse_forward(delta)}ms", "every": every, **_policy(sessions)})

    def run_next(self, kind: str | None = None, *, sessions: Sessions = SPARE) -> list[Fired]:
        wanted = None if kind is None else TimerKind(kind).value
        return self._moved("next", {"kind": wanted, **_policy(sessions)})

    def freeze(self, at: datetime | None = None) -> None:
        self._post("freeze", None if at is None else _text(at))

    def resume(self) -> None:
        self._control.ask("POST", "/v1/clock/resume", {})

    @property
    def rate(self) -> float:
        return self._clock().rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self.set_rate(rate)

    def set_rate(self, rate: float, *, sessions: Sessions = SPARE) -> None:
        self._control.ask("POST", "/v1/clock/rate", {"rate": rate, **_policy(sessions)})

    def set(self, when: datetime) -> None:
        self._post("set", _text(when))

    def skew(self, node: int, delta: Delta) -> None:
        self._control.ask("POST", "/v1/clock/skew", {"node": node, "by": f"{parse_delta(delta)}ms"})

    def drift(self, node: int, rate: float) -> None:
        self._control.ask("POST", "/v1/clock/drift", {"node": node, "rate": rate})

    def include(self, names: Iterable[str]) -> None:
        self._control.ask("POST", "/v1/clock/include", {"names": sorted(checked_included(names))})

    @property
    def included(self) -> frozenset[str]:
        return frozenset(self._clock().included)

    def pending(self) -> list[Pending]:
        return [
            Pending(each.node, TimerKind(each.kind), each.what, datetime.fromisoformat(each.at), each.in_ms)
            for each in self._clock().pending
        ]

    def reset(self) -> None:
        self._control.ask("POST", "/v1/clock/reset", {})

    @property
    def ties(self) -> Random | None:
        raise self._control.not_served("the order of timers")

    @ties.setter
    def ties(self, ties: Random | None) -> None:
        del ties
        raise self._control.not_served("the order of timers")

    def follow(self, traveller: Any) -> None:
        del traveller
        raise self._control.not_served("moving a traveller along")

    def _clock(self) -> ClockDocument:
        shown: ClockDocument = self._control.read(ClockDocument, "GET", "/v1/clock")
        return shown

    def _moved(self, how: str, body: dict[str, Any]) -> list[Fired]:
        done: FiredList = self._control.read(FiredList, "POST", f"/v1/clock/{how}", body)
        return [Fired(datetime.fromisoformat(x.at), x.node, TimerKind(x.kind), x.what) for x in done.fired]

    def _post(self, what: str, at: str | None) -> None:
        self._control.ask("POST", f"/v1/clock/{what}", {"at": at})


def _policy(sessions: Sessions) -> dict[str, Any]:
    """Raises ValueError."""
    checked = checked_sessions(sessions)
    return {"sessions": checked} if isinstance(checked, str) else {"expired": sorted(checked)}


def _text(at: datetime) -> str:
    return moment_text(moment(parse_moment(at)))

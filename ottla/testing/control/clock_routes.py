"""Broker time over HTTP."""

from datetime import datetime
from typing import Final

from ottla.testing.clock.control import Jump
from ottla.testing.clock.sessions import EXPIRE, Sessions
from ottla.testing.clock.timeline import (
    MomentError,
    checked_wall,
    describe_ms,
    moment,
    moment_text,
    parse_delta,
    parse_forward,
    parse_moment,
)
from ottla.testing.control.documents import ClockDocument, FiredDocument, FiredList, PendingDocument
from ottla.testing.control.problems import wrong_value
from ottla.testing.control.questions import (
    ClockAdvance,
    ClockDrift,
    ClockInclude,
    ClockMoment,
    ClockNext,
    ClockRate,
    ClockSkew,
    EmptyBody,
)
from ottla.testing.control.router import ControlCall, Row
from ottla.testing.control.service import ControlService, check_range
from ottla.timer.clock import TimerKind

EVERY_MS_MAX: Final = 3_600_000
"""Of periodic jobs: 36,000 rounds, which take a second of the processor."""
RATE_MIN: Final = 0.001
RATE_MAX: Final = 10_000


def _clock(service: ControlService, _call: ControlCall) -> ClockDocument:
    clock = service.bed.clock
    timeline = clock.timeline
    pending = [
        PendingDocument(each.node, each.kind, each.what, moment_text(each.at), each.in_ms) for each in clock.pending()
    ]
    return ClockDocument(
        now=moment_text(moment(timeline.wall_ms())),
        is_real=not clock.is_touched,
        is_frozen=timeline.is_frozen,
        rate=timeline.rate,
        pending=pending,
        included=sorted(clock.included),
    )


async def _advance(service: ControlService, call: ControlCall) -> FiredList:
    body: ClockAdvance = call.body
    sessions = _sessions(body)
    try:
        delta_ms = parse_forward(body.by)
        if body.every and delta_ms > EVERY_MS_MAX:
            raise wrong_value("every", f"each round of periodic jobs, of at most {describe_ms(EVERY_MS_MAX)}")
        jump = await service.bed.clock.advance(delta_ms, sessions, every=body.every)
    except MomentError as error:
        raise wrong_value("by", str(error)) from None
    service.events.add("clock_advance", by_ms=delta_ms, fired=len(jump.fired))
    return _fired(jump)


async def _next(service: ControlService, call: ControlCall) -> FiredList:
    body: ClockNext = call.body
    known = {each.value: each for each in TimerKind}
    if body.kind is not None and body.kind not in known:
        raise wrong_value("kind", f"there is no timer {body.kind[:60]!r}: GET /v1/clock shows what is pending")
    jump = await service.bed.clock.run_next(known.get(body.kind or ""), _sessions(body))
    service.events.add("clock_next", fired=len(jump.fired))
    return _fired(jump)


def _fired(jump: Jump) -> FiredList:
    return FiredList([FiredDocument(moment_text(each.at), each.node, each.kind, each.what) for each in jump.fired])


def _sessions(body: ClockAdvance | ClockNext | ClockRate) -> Sessions:
    """Raises Problem."""
    if body.expired and body.sessions == EXPIRE:
        raise wrong_value("expired", "all members expire already: leave sessions out")
    return frozenset(body.expired) if body.expired else body.sessions


def _rate(service: ControlService, call: ControlCall) -> ClockDocument:
    body: ClockRate = call.body
    _check_rate(body.rate)
    sessions = _sessions(body)
    try:
        service.bed.clock.set_rate(body.rate, sessions)
    except ValueError as error:
        raise wrong_value("rate", str(error)) from None
    service.events.add("clock_rate", rate=body.rate)
    return _clock(service, call)


def _include(service: ControlService, call: ControlCall) -> ClockDocument:
    body: ClockInclude = call.body
    service.bed.clock.include(frozenset(body.names))
    service.events.add("clock_include", names=sorted(set(body.names)))
    return _clock(service, call)


def _skew(service: ControlService, call: ControlCall) -> ClockDocument:
    body: ClockSkew = call.body
    clock = service.bed.clock
    try:
        delta_ms = parse_delta(body.by)
        checked_wall(clock.timeline.wall_ms() + delta_ms)
    except MomentError as error:
        raise wrong_value("by", str(error)) from None
    try:
        clock.skew(body.node, delta_ms)
    except ValueError as error:
        raise wrong_value("node", str(error)) from None
    service.events.add("clock_skew", node=body.node, by_ms=delta_ms)
    return _clock(service, call)


def _drift(service: ControlService, call: ControlCall) -> ClockDocument:
    body: ClockDrift = call.body
    _check_rate(body.rate)
    try:
        service.bed.clock.drift(body.node, body.rate)
    except ValueError as error:
        raise wrong_value("node" if body.rate > 0 else "rate", str(error)) from None
    service.events.add("clock_drift", node=body.node, rate=body.rate)
    return _clock(service, call)


def _check_rate(rate: float) -> None:
    """That nothing which can be is beyond what clocks show; what cannot be is refused where it is set. Raises
    Problem."""
    if rate > 0:
        check_range("rate", rate, RATE_MIN, RATE_MAX)


def _freeze(service: ControlService, call: ControlCall) -> ClockDocument:
    body: ClockMoment = call.body
    service.bed.clock.freeze(None if body.at is None else _moment_ms(body.at))
    service.events.add("clock_freeze")
    return _clock(service, call)


def _resume(service: ControlService, call: ControlCall) -> ClockDocument:
    service.bed.clock.resume()
    service.events.add("clock_resume")
    return _clock(service, call)


def _reset(service: ControlService, call: ControlCall) -> ClockDocument:
    service.bed.clock.reset()
    service.events.add("clock_reset")
    return _clock(service, call)


def _set(service: ControlService, call: ControlCall) -> ClockDocument:
    body: ClockMoment = call.body
    if body.at is None:
        raise wrong_value("at", "it is missing")
    service.bed.clock.set_wall(_moment_ms(body.at))
    service.events.add("clock_set")
    return _clock(service, call)


def _moment_ms(text: str) -> int:
    """Raises Problem."""
    try:
        return parse_moment(datetime.fromisoformat(text))
    except MomentError as error:
        raise wrong_value("at", f"{text[:60]!r}: {error}") from None
    except ValueError:
        raise wrong_value("at", f"{text[:60]!r}: expected a moment such as 2026-11-23T12:00:00+00:00") from None


# fmt: off
CLOCK_ROWS: Final = (
    Row("GET", "/v1/clock", "The time of the brokers, and their timers.", _clock, answer=ClockDocument),
    Row("POST", "/v1/clock/advance", "Move it on; gives the timers that ran.", _advance, ClockAdvance, FiredList,
        changes=True),
    Row("POST", "/v1/clock/freeze", "Stop it, where it is or at a moment.", _freeze, ClockMoment, ClockDocument,
        changes=True),
    Row("POST", "/v1/clock/resume", "Have it go on.", _resume, EmptyBody, ClockDocument, changes=True),
    Row("POST", "/v1/clock/next", "Move it to the next timer that comes to something.", _next, ClockNext, FiredList,
        changes=True),
    Row("POST", "/v1/clock/rate", "Have it run faster or slower.", _rate, ClockRate, ClockDocument, changes=True),
    Row("POST", "/v1/clock/include", "Have tokens or replication go by it too.", _include, ClockInclude, ClockDocument,
        changes=True),
    Row("POST", "/v1/clock/skew", "Set the wall clock of one broker ahead of the others', or behind.", _skew, ClockSkew,
        ClockDocument, changes=True),
    Row("POST", "/v1/clock/drift", "Have the wall clock of one broker run faster or slower than the others'.", _drift,
        ClockDrift, ClockDocument, changes=True),
    Row("POST", "/v1/clock/reset", "Have it be the machine's again.", _reset, EmptyBody, ClockDocument, changes=True),
    Row("POST", "/v1/clock/set", "Set the wall clock.", _set, ClockMoment, ClockDocument, changes=True),
)
# fmt: on

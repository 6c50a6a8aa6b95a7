"""Broker time over HTTP."""

from datetime import datetime
from typing import Final

from ottla.testing.clock.sessions import EXPIRE, Sessions
from ottla.testing.clock.timeline import MomentError, describe_ms, moment, parse_forward, parse_moment
from ottla.testing.control.documents import ClockDocument, FiredDocument, FiredList, PendingDocument
from ottla.testing.control.problems import wrong_value
from ottla.testing.control.questions import ClockAdvance, ClockMoment, EmptyBody
from ottla.testing.control.router import ControlCall, Row
from ottla.testing.control.service import ControlService

EVERY_MS_MAX: Final = 3_600_000
"""Of periodic jobs: 36,000 rounds, which take a second of the processor."""


def _clock(service: ControlService, _call: ControlCall) -> ClockDocument:
    clock = service.bed.clock
    timeline = clock.timeline
    pending = [PendingDocument(each.node, each.kind, each.what, _text(each.at), each.in_ms) for each in clock.pending()]
    return ClockDocument(
        now=_text(moment(timeline.wall_ms())),
        is_real=not clock.is_touched,
        is_frozen=timeline.is_frozen,
        rate=timeline.rate,
        pending=pending,
    )


async def _advance(service: ControlService, call: ControlCall) -> FiredList:
    body: ClockAdvance = call.body
    if body.expired and body.sessions == EXPIRE:
        raise wrong_value("expired", "all members expire already: leave sessions out")
    sessions: Sessions = frozenset(body.expired) if body.expired else body.sessions
    try:
        delta_ms = parse_forward(body.by)
        if body.every and delta_ms > EVERY_MS_MAX:
            raise wrong_value("every", f"each round of periodic jobs, of at most {describe_ms(EVERY_MS_MAX)}")
        jump = await service.bed.clock.advance(delta_ms, sessions, every=body.every)
    except MomentError as error:
        raise wrong_value("by", str(error)) from None
    service.events.add("clock_advance", by_ms=delta_ms, fired=len(jump.fired))
    return FiredList([FiredDocument(_text(each.at), each.node, each.kind, each.what) for each in jump.fired])


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


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")


# fmt: off
CLOCK_ROWS: Final = (
    Row("GET", "/v1/clock", "The time of the brokers, and their timers.", _clock, answer=ClockDocument),
    Row("POST", "/v1/clock/advance", "Move it on; gives the timers that ran.", _advance, ClockAdvance, FiredList,
        changes=True),
    Row("POST", "/v1/clock/freeze", "Stop it, where it is or at a moment.", _freeze, ClockMoment, ClockDocument,
        changes=True),
    Row("POST", "/v1/clock/resume", "Have it go on.", _resume, EmptyBody, ClockDocument, changes=True),
    Row("POST", "/v1/clock/reset", "Have it be the machine's again.", _reset, EmptyBody, ClockDocument, changes=True),
    Row("POST", "/v1/clock/set", "Set the wall clock.", _set, ClockMoment, ClockDocument, changes=True),
)
# fmt: on

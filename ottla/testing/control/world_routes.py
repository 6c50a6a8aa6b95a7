"""What concerns all of the brokers, over HTTP: about, reset, brokers, events, the last requests, reports, tests."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from ottla.broker.admin.http import HttpResponse
from ottla.protocol.errors import ErrorCode
from ottla.testing.control.documents import (
    About,
    AuditDocument,
    ControlReport,
    Emptied,
    EmptyBody,
    FindingDocument,
    ReportSection,
    TestEnd,
    TestMark,
    WireLine,
    WireLines,
)
from ottla.testing.control.problems import wrong_value
from ottla.testing.control.router import ControlCall, QueryField, Row, lines_response
from ottla.testing.control.service import MS_PER_S, ControlService, checked_wait
from ottla.testing.report import ReportMark, failure_sections
from ottla.testing.wire import EVENTS_KEPT, WireEvent
from ottla.testing.worlds import describe_leak

NS_PER_MS: Final = 1_000_000
EVENTS_WAIT_MS: Final = 30_000
NAME_LENGTH_MAX: Final = 1000


def about(service: ControlService, features: list[str], not_served: list[str]) -> About:
    hosted = service.bed.hosted
    try:
        own_version = version("ottla")
    except PackageNotFoundError:
        own_version = "0"
    return About(
        version=own_version,
        bootstrap=hosted.bootstrap,
        cluster_id=hosted.cluster_id,
        brokers=list(hosted.parts()),
        fault_seed=service.faults.seed,
        clock="moved" if service.bed.clock.is_touched else "real",
        features=features,
        not_served=not_served,
    )


async def _reset(service: ControlService, _call: ControlCall) -> Emptied:
    report = await service.bed.reset()
    service.events.add("reset", topics=report.topics, groups=report.groups)
    leaks = [describe_leak(each) for each in report.leaks]
    return Emptied(report.topics, report.groups, leaks, round(report.duration_ms, 2))


# What has happened.


async def _events(service: ControlService, call: ControlCall) -> HttpResponse:
    """Lines of JSON. Where there is none yet, it waits; an answer without lines says that none came."""
    after = call.query["after"]
    wait_ms = checked_wait(call.query["wait_ms"], "wait_ms")
    if service.events.count <= after and wait_ms:
        with service.waits():
            await service.events.wait(after, wait_ms / MS_PER_S)
    return lines_response(service.events.since(after))


def _wire(service: ControlService, call: ControlCall) -> WireLines:
    last = call.query["last"]
    if not 1 <= last <= EVENTS_KEPT:
        raise wrong_value("last", f"{last}, expected 1 to {EVENTS_KEPT}")
    events = [each for each in service.bed.wire.since(0) if not each.connection.is_of_broker][-last:]
    began_ns = events[0].at_ns if events else 0
    return WireLines([_wire_line(each, began_ns) for each in events])


def _wire_line(event: WireEvent, began_ns: int) -> WireLine:
    has_answer = event.error is not None
    return WireLine(
        at_ms=round((event.at_ns - began_ns) / NS_PER_MS, 2),
        connection=event.connection.name,
        client_id=event.connection.client_id,
        api=event.api,
        version=event.version,
        what=event.what,
        member_id=event.member_id,
        error=_error_name(event.error) if event.error is not None else None,
        duration_ms=round((event.answered_ns - event.at_ns) / NS_PER_MS, 2) if has_answer else None,
    )


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _audit(service: ControlService, _call: ControlCall) -> AuditDocument:
    """Since the last reset."""
    found = service.bed.auditor.findings()
    return AuditDocument(
        [
            FindingDocument(each.kind.name, each.what, each.where, each.client_id, each.events, each.explained_by)
            for each in found
        ],
        service.bed.auditor.unjudged(),
    )


# Tests and their reports.


def _report(service: ControlService, call: ControlCall) -> ControlReport:
    is_full = call.query["full"] > 0
    sections = failure_sections(service.bed, service.mark, is_full=is_full)
    return ControlReport(service.test, [ReportSection(title, text) for title, text in sections])


async def _test(service: ControlService, call: ControlCall) -> TestEnd:
    body: TestMark = call.body
    if not 0 < len(body.name) <= NAME_LENGTH_MAX:
        raise wrong_value("name", f"expected a name of at most {NAME_LENGTH_MAX} characters")
    bed = service.bed
    service.events.add(f"test_{body.phase}", test=body.name)
    if body.phase == "begin":
        service.test = bed.wire.test = body.name
        service.mark = ReportMark.now(bed)
        return TestEnd(body.name, (), ())
    leaks = [describe_leak(each) for each in await bed.open_connections() if each.opened_in == body.name]
    bed.wire.test = ""
    return TestEnd(body.name, leaks, [each.text for each in service.faults.unused() if each.is_error])


_EVENTS: Final = (
    QueryField("after", "Those with higher numbers than this.", 0),
    QueryField("wait_ms", "Where there is none, wait so long.", EVENTS_WAIT_MS),
)
_LAST: Final = (QueryField("last", "How many.", 40),)
_FULL: Final = (QueryField("full", "1: with more requests.", 0),)
# fmt: off
WORLD_ROWS: Final = (
    Row("POST", "/v1/reset", "Empty the brokers.", _reset, EmptyBody, Emptied, changes=True, needs_brokers=False),
    Row("GET", "/v1/events", "What happens, in lines of JSON.", _events, query=_EVENTS, needs_brokers=False),
    Row("GET", "/v1/wire", "The last requests of clients.", _wire, answer=WireLines, query=_LAST, needs_brokers=False),
    Row("GET", "/v1/audit", "What was lost, doubled or reordered.", _audit, answer=AuditDocument),
    Row("GET", "/v1/report", "What a failing test shows.", _report, answer=ControlReport, query=_FULL),
    Row("POST", "/v1/tests", "A test begins or ends.", _test, TestMark, TestEnd),
)
# fmt: on

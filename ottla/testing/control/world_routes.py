"""What concerns all of the brokers, over HTTP: reset, events, the audit, reports, tests."""

from typing import Final

from ottla.broker.admin.http import HttpResponse
from ottla.testing.control.documents import (
    AuditDocument,
    ConnectionList,
    ControlReport,
    Emptied,
    FindingDocument,
    ReportSection,
    TestEnd,
)
from ottla.testing.control.problems import wrong_value
from ottla.testing.control.questions import EmptyBody, TestMark
from ottla.testing.control.router import LINES, ControlCall, QueryField, Row, lines_response
from ottla.testing.control.service import MS_PER_S, ControlService, checked_wait
from ottla.testing.report import ReportMark, failure_sections, leftovers
from ottla.testing.worlds import describe_leak

EVENTS_WAIT_MS: Final = 30_000
NAME_LENGTH_MAX: Final = 1000


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


def _audit(service: ControlService, _call: ControlCall) -> AuditDocument:
    """Since the last reset."""
    auditor = service.scope.auditor
    return AuditDocument(list(map(FindingDocument.of, auditor.findings())), auditor.unjudged())


# Tests and their reports.


def _report(service: ControlService, call: ControlCall) -> ControlReport:
    is_full = call.query["full"] > 0
    sections = failure_sections(service.bed, service.mark, is_full=is_full, scope=service.scope)
    return ControlReport(service.test, [ReportSection(title, text) for title, text in sections])


async def _test(service: ControlService, call: ControlCall) -> TestEnd:
    body: TestMark = call.body
    if not 0 < len(body.name) <= NAME_LENGTH_MAX:
        raise wrong_value("name", f"expected a name of at most {NAME_LENGTH_MAX} characters")
    bed, scope = service.bed, service.scope
    service.events.add(f"test_{body.phase}", test=body.name)
    if body.phase == "begin":
        service.test = body.name
        scope.begin_test(body.name)
        bed.hosted.capture_host.mark(test=body.name)
        service.mark = ReportMark.now(bed)
        if body.audit is not None:
            scope.auditor.begin(is_on=body.audit != "off")
        return TestEnd(body.name, (), ())
    leaks = [describe_leak(each) for each in await bed.left_open(body.name, scope.prefix)]
    scope.end_test()
    unused = scope.unused_faults()
    found = list(map(FindingDocument.of, scope.auditor.findings())) if bed.hosted.parts() else []
    if body.clear_faults:
        await scope.clear_scripts()
        scope.clear_faults()
    return TestEnd(body.name, leaks, unused, found, leftovers(bed, body.groups))


async def _connections(service: ControlService, _call: ControlCall) -> ConnectionList:
    return ConnectionList(await service.bed.open_connections(service.scope.prefix))


_EVENTS: Final = (
    QueryField("after", "Those with higher numbers than this.", 0),
    QueryField("wait_ms", "Where there is none, wait so long.", EVENTS_WAIT_MS),
)
_FULL: Final = (QueryField("full", "1: with more requests.", 0),)
# fmt: off
WORLD_ROWS: Final = (
    Row("POST", "/v1/reset", "Empty the brokers.", _reset, EmptyBody, Emptied, changes=True, needs_brokers=False),
    Row("GET", "/v1/events", "What happens, in lines of JSON.", _events, query=_EVENTS, media_type=LINES,
        needs_brokers=False),
    Row("GET", "/v1/connections", "Those of clients.", _connections, answer=ConnectionList),
    Row("GET", "/v1/audit", "What was lost, doubled or reordered.", _audit, answer=AuditDocument),
    Row("GET", "/v1/report", "What a failing test shows.", _report, answer=ControlReport, query=_FULL,
        needs_brokers=False),
    Row("POST", "/v1/tests", "A test begins or ends.", _test, TestMark, TestEnd, needs_brokers=False),
)
# fmt: on

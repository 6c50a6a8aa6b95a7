"""What goes over the wire, over HTTP: the last requests of clients, captures, and what was used of the protocol."""

from typing import Final

from ottla.broker.admin.http import HttpResponse
from ottla.protocol.errors import ErrorCode
from ottla.testing.control.problems import missing, wrong_state, wrong_value
from ottla.testing.control.questions import EmptyBody
from ottla.testing.control.router import ControlCall, QueryField, Row
from ottla.testing.control.served_capture import ServedCapture
from ottla.testing.control.service import ControlService
from ottla.testing.control.wire_documents import (
    CaptureDocument,
    CoverageDocument,
    MarkBody,
    MarkDocument,
    WireLine,
    WireLines,
)
from ottla.testing.wire import EVENTS_KEPT, WireEvent
from ottla.testing.wire_capture.file_format import CaptureError

NS_PER_MS: Final = 1_000_000
MARK_LENGTH_MAX: Final = 1000
OCTETS: Final = "application/octet-stream"


def _wire(service: ControlService, call: ControlCall) -> WireLines:
    last = call.query["last"]
    if not 1 <= last <= EVENTS_KEPT:
        raise wrong_value("last", f"{last}, expected 1 to {EVENTS_KEPT}")
    kept, covers = service.bed.wire.since(0), service.scope.covers_connection
    events = [each for each in kept if not each.connection.is_of_broker and covers(each.connection)][-last:]
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


# Captures.


def _start(service: ControlService, _call: ControlCall) -> CaptureDocument:
    """In the place of one that is over."""
    known = service.capture
    if known is not None and not known.is_stopped:
        raise wrong_state("a capture is under way: POST /v1/wire/stop ends it")
    try:
        made = ServedCapture(service.bed)
    except CaptureError as error:
        raise wrong_state(str(error)) from None
    if known is not None:
        known.close()
    service.capture = made
    service.events.add("capture_started")
    return _document(made)


async def _stop(service: ControlService, _call: ControlCall) -> CaptureDocument:
    """Answered when all is in the file. One that is over stays as it is."""
    capture = _capture(service)
    if not capture.is_stopped:
        await capture.stop()
        service.events.add("capture_stopped", bytes=capture.size)
    return _document(capture)


def _fetch(service: ControlService, _call: ControlCall) -> HttpResponse:
    capture = _capture(service)
    if not capture.is_stopped:
        raise wrong_state("the capture is under way: POST /v1/wire/stop ends it")
    return HttpResponse(200, (), OCTETS, rest=capture.content())


def _mark(service: ControlService, call: ControlCall) -> MarkDocument:
    body: MarkBody = call.body
    if not 0 < len(body.text) <= MARK_LENGTH_MAX:
        raise wrong_value("text", f"expected a text of at most {MARK_LENGTH_MAX} characters")
    host = service.bed.hosted.capture_host
    host.mark(text=body.text)
    return MarkDocument(host.capture is not None and not host.capture.is_over)


def _capture(service: ControlService) -> ServedCapture:
    """Raises Problem."""
    if service.capture is None:
        raise missing("capture", "there is no capture: POST /v1/wire/start begins one")
    return service.capture


def _document(capture: ServedCapture) -> CaptureDocument:
    return CaptureDocument(capture.is_stopped, capture.size, capture.why_early)


# Coverage.


def _coverage(service: ControlService, _call: ControlCall) -> CoverageDocument:
    """Since the brokers have their control, or since it was forgotten: a reset does not end it."""
    counted = service.coverage.with_injected(service.bed.hosted.fault_host.faults_if_used)
    plain = counted.plain()
    return CoverageDocument(**plain, never=counted.never_answered(), text=counted.lines())


def _forget_coverage(service: ControlService, call: ControlCall) -> CoverageDocument:
    service.forget_coverage()
    return _coverage(service, call)


_LAST: Final = (QueryField("last", "How many.", 40),)
# fmt: off
WIRE_ROWS: Final = (
    Row("GET", "/v1/wire", "The last requests of clients.", _wire, answer=WireLines, query=_LAST, needs_brokers=False),
    Row("POST", "/v1/wire/start", "Capture what goes over the wire, in the place of what was captured before.", _start,
        EmptyBody, CaptureDocument, changes=True),
    Row("POST", "/v1/wire/stop", "End the capture.", _stop, EmptyBody, CaptureDocument, changes=True,
        needs_brokers=False),
    Row("POST", "/v1/wire/mark", "A line in the capture, to find a place again.", _mark, MarkBody, MarkDocument,
        needs_brokers=False),
    Row("GET", "/v1/wire/capture", "The file of the capture that is over (docs/wire.md).", _fetch, media_type=OCTETS,
        needs_brokers=False),
    Row("GET", "/v1/coverage", "What was used of the protocol.", _coverage, answer=CoverageDocument,
        needs_brokers=False),
    Row("DELETE", "/v1/coverage", "Forget it, and begin to count again.", _forget_coverage, answer=CoverageDocument,
        changes=True, needs_brokers=False),
)
# fmt: on

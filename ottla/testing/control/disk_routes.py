"""Disks of brokers over HTTP."""

from typing import Final

from ottla.storage.files import reason_of
from ottla.testing.control.broker_routes import node_id_of
from ottla.testing.control.problems import Problem, wrong_state, wrong_value
from ottla.testing.control.router import ControlCall, Row
from ottla.testing.control.service import ControlService, check_range
from ottla.testing.control.surroundings_documents import (
    DiskBody,
    DiskCorrupt,
    DiskDocument,
    DiskFail,
    DiskFull,
    DiskHeal,
    DiskList,
    DiskLose,
    DiskSlow,
    DiskStall,
    DiskTear,
)
from ottla.testing.surroundings.disks import BrokerDisk, DiskError

SLOW_MS_MAX: Final = 60_000
BYTES_MAX: Final = 1 << 50
TIMES_MAX: Final = 1_000_000
FAILURES_MAX: Final = 100
"""Of one disk: each operation of the broker looks at all of them."""
MATCH_LENGTH_MAX: Final = 200
INT64_MAX: Final = (1 << 63) - 1


def _disks(service: ControlService, _call: ControlCall) -> DiskList:
    return DiskList([_document(service, node_id) for node_id in service.bed.hosted.node_ids])


def _disk(service: ControlService, call: ControlCall) -> DiskDocument:
    return _document(service, node_id_of(service, call.path["node"]))


def _document(service: ControlService, node_id: int) -> DiskDocument:
    found = service.bed.disk(node_id).in_force()
    return DiskDocument(node_id, found.room_bytes, found.fsync_ms, found.failures, found.is_stalled)


def _change(service: ControlService, call: ControlCall) -> DiskDocument:
    body: DiskBody = call.body
    node_id = node_id_of(service, call.path["node"])
    try:
        _changed(service.bed.disk(node_id), body)
    except DiskError as error:
        raise _wrong_disk(str(error)) from None
    except OSError as error:
        raise wrong_state(f"the files of broker {node_id} cannot be changed: {reason_of(error)}") from None
    service.events.add(f"disk_{body.do}", node=node_id)
    return _document(service, node_id)


def _changed(disk: BrokerDisk, body: DiskBody) -> None:
    """Raises Problem, DiskError, KafkaError, NotRunningError, OSError."""
    match body:
        case DiskFull():
            check_range("after_bytes", body.after_bytes, 0, BYTES_MAX)
            disk.full(after_bytes=body.after_bytes)
        case DiskSlow():
            check_range("ms", body.ms, 0, SLOW_MS_MAX)
            disk.slow_fsync(body.ms)
        case DiskFail():
            _fail(disk, body)
        case DiskStall():
            disk.stall()
        case DiskCorrupt():
            check_range("offset", body.offset, 0, INT64_MAX)
            disk.corrupt(body.topic, body.partition, offset=body.offset)
        case DiskTear():
            check_range("bytes", body.bytes, 1, BYTES_MAX)
            disk.tear_tail(body.bytes, match=_pattern(body.match))
        case DiskLose():
            disk.lose_unsynced()
        case DiskHeal():
            disk.heal()


def _wrong_disk(detail: str) -> Problem:
    """A fault that the disk cannot have as it is."""
    return Problem(409, "wrong-disk", detail)


def _fail(disk: BrokerDisk, body: DiskFail) -> None:
    if body.times is not None:
        check_range("times", body.times, 1, TIMES_MAX)
    if len(disk.in_force().failures) >= FAILURES_MAX:
        raise _wrong_disk(f"there are {FAILURES_MAX} failures of this disk already: heal it first")
    disk.fail(body.operation, match=_pattern(body.match), times=body.times)


def _pattern(text: str) -> str:
    """Raises Problem."""
    if not 0 < len(text) <= MATCH_LENGTH_MAX:
        raise wrong_value("match", f"expected a pattern of at most {MATCH_LENGTH_MAX} characters")
    return text


# fmt: off
DISK_ROWS: Final = (
    Row("GET", "/v1/disks", "What is wrong with the disks of all brokers.", _disks, answer=DiskList,
        needs_brokers=False),
    Row("GET", "/v1/disks/{node}", "What is wrong with a disk.", _disk, answer=DiskDocument, needs_brokers=False),
    Row("PUT", "/v1/disks/{node}", "Have a disk be full, slow, stalled, failing or damaged, or heal it.", _change,
        DiskBody, DiskDocument, changes=True, needs_brokers=False),
)
# fmt: on

"""Snapshots over HTTP: a state of the broker that is kept, and given again."""

from typing import Final

from ottla.storage.files import reason_of
from ottla.testing.control.documents import RestoreDocument, SnapshotDocument, SnapshotNames
from ottla.testing.control.problems import missing, wrong_state, wrong_value
from ottla.testing.control.questions import EmptyBody, RestoreBody
from ottla.testing.control.router import ControlCall, Row
from ottla.testing.control.service import ControlService
from ottla.testing.snapshots.snapshots import SnapshotError
from ottla.testing.worlds import describe_leak

SNAPSHOTS_MAX: Final = 64
NAME_LENGTH_MAX: Final = 200


def _snapshots(service: ControlService, _call: ControlCall) -> SnapshotNames:
    return SnapshotNames(service.bed.snapshots.names)


async def _take(service: ControlService, call: ControlCall) -> SnapshotDocument:
    name, known = call.path["name"], service.bed.snapshots.names
    if len(name) > NAME_LENGTH_MAX:
        raise wrong_value("name", f"expected a name of at most {NAME_LENGTH_MAX} characters")
    if name not in known and len(known) >= SNAPSHOTS_MAX:
        raise wrong_state(f"there are {SNAPSHOTS_MAX} snapshots already: DELETE /v1/snapshots/NAME removes one")
    try:
        report = await service.bed.snapshot(name)
    except SnapshotError as error:
        raise wrong_state(str(error)) from None
    except OSError as error:
        raise wrong_state(f"the snapshot cannot be written: {reason_of(error)}") from None
    service.events.add("snapshot", snapshot=name)
    return SnapshotDocument(name, report.partitions, report.copied_bytes, round(report.duration_ms, 2))


async def _restore(service: ControlService, call: ControlCall) -> RestoreDocument:
    name, body = _known(service, call), call.body
    report = await service.bed.restore(name, members=body.members)
    service.watch_faults()
    service.events.add("restore", snapshot=name, topics=report.topics)
    leaks = [describe_leak(each) for each in report.leaks]
    return RestoreDocument(name, report.topics, leaks, round(report.duration_ms, 2))


def _drop(service: ControlService, call: ControlCall) -> SnapshotNames:
    service.bed.snapshots.drop(_known(service, call))
    return _snapshots(service, call)


def _known(service: ControlService, call: ControlCall) -> str:
    """Raises Problem."""
    name, known = call.path["name"], service.bed.snapshots.names
    if name not in known:
        there = ", ".join(known) or "none"
        raise missing("snapshot", f"there is no snapshot {name[:NAME_LENGTH_MAX]!r}, only {there}")
    return name


# fmt: off
SNAPSHOT_ROWS: Final = (
    Row("GET", "/v1/snapshots", "Their names, in the order in which they were taken.", _snapshots,
        answer=SnapshotNames),
    Row("PUT", "/v1/snapshots/{name}", "Keep the state of the broker, in the place of one of this name.", _take,
        EmptyBody, SnapshotDocument, changes=True),
    Row("DELETE", "/v1/snapshots/{name}", "Remove a snapshot.", _drop, answer=SnapshotNames, changes=True),
    Row("POST", "/v1/snapshots/{name}/restore", "Go back to a snapshot, as often as you like.", _restore, RestoreBody,
        RestoreDocument, changes=True),
)
# fmt: on

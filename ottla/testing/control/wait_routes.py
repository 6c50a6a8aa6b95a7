"""Waits over HTTP: the conditions of the handle by name, and the hits of a rule."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.testing import conditions
from ottla.testing.control.documents import FaultDocument, GroupDocument, TopicDocument, WaitMet
from ottla.testing.control.json_values import json_name
from ottla.testing.control.problems import wrong_value
from ottla.testing.control.questions import WaitBody
from ottla.testing.control.router import ControlCall, Row
from ottla.testing.control.script_routes import script_document, script_of
from ottla.testing.control.service import ControlService
from ottla.testing.faults.faults import FaultHits
from ottla.testing.faults.rule_values import nearest
from ottla.testing.waits import Condition

QUIET_MS: Final = 50


class WaitKind(NamedTuple):
    make: Callable[[ControlService, WaitBody], Condition]
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    needs_brokers: bool = True


def _stable(service: ControlService, body: WaitBody) -> Condition:
    return conditions.group_stable(service.bed.sources, _text(body.group), body.members, body.assigned)


def _empty(service: ControlService, body: WaitBody) -> Condition:
    return conditions.group_empty(service.bed.sources, _text(body.group))


def _generation(service: ControlService, body: WaitBody) -> Condition:
    return conditions.group_generation(service.bed.sources, _text(body.group), body.generation or 0)


def _lag(service: ControlService, body: WaitBody) -> Condition:
    return conditions.group_lag(service.bed.sources, _text(body.group), body.lag or 0, _text(body.topic))


def _committed(service: ControlService, body: WaitBody) -> Condition:
    return conditions.group_committed(service.bed.sources, _text(body.group), _text(body.topic), _offsets(body) or {})


def _consumed(service: ControlService, body: WaitBody) -> Condition:
    if body.count is not None and body.offsets is not None:
        raise wrong_value("offsets", "expected offsets or count, not both")
    return conditions.topic_consumed(service.bed.sources, _text(body.topic), body.count, _offsets(body))


def _records(service: ControlService, body: WaitBody) -> Condition:
    return conditions.topic_records(service.bed.sources, _text(body.topic), body.count or 0)


def _in_sync(service: ControlService, body: WaitBody) -> Condition:
    return conditions.topic_in_sync(service.bed.sources, _text(body.topic))


def _leader(service: ControlService, body: WaitBody) -> Condition:
    return conditions.partition_led_by(service.bed.sources, _text(body.topic), body.partition or 0, body.node)


def _hits(service: ControlService, body: WaitBody) -> Condition:
    return FaultHits(service.fault(_text(body.fault)), 1 if body.hits is None else body.hits)


def _script(service: ControlService, body: WaitBody) -> Condition:
    from ottla.testing.step_lists.handles import ScriptDone

    run = script_of(service, _text(body.script))
    return ScriptDone(service.bed.scripts, run)


def _idle(service: ControlService, body: WaitBody) -> Condition:
    bed = service.bed
    return conditions.ClientsIdle(bed.sources, QUIET_MS if body.ms is None else body.ms, bed.waits.look)


KINDS: Final[Mapping[str, WaitKind]] = {
    "group-stable": WaitKind(_stable, ("group",), ("members", "assigned")),
    "group-empty": WaitKind(_empty, ("group",)),
    "group-generation": WaitKind(_generation, ("group", "generation")),
    "group-lag": WaitKind(_lag, ("group", "topic"), ("lag",)),
    "group-committed": WaitKind(_committed, ("group", "topic", "offsets")),
    "topic-consumed": WaitKind(_consumed, ("topic",), ("count", "offsets")),
    "topic-records": WaitKind(_records, ("topic", "count")),
    "topic-in-sync": WaitKind(_in_sync, ("topic",)),
    "partition-leader": WaitKind(_leader, ("topic", "partition"), ("node",)),
    "fault-hits": WaitKind(_hits, ("fault",), ("hits",)),
    "script-done": WaitKind(_script, ("script",), needs_brokers=False),
    "idle": WaitKind(_idle, (), ("ms",)),
}
ALWAYS: Final = ("for", "within_ms")


async def _wait(service: ControlService, call: ControlCall) -> WaitMet:
    body: WaitBody = call.body
    kind = _checked(body)
    if kind.needs_brokers:
        service.check_running()
    condition = kind.make(service, body)
    waited_ms = await service.wait(condition, body.within_ms)
    reader = service.bed.reader
    topic = None if body.topic is None else reader.topic(body.topic)
    return WaitMet(
        waited_ms,
        condition.explain().state,
        None if body.group is None else GroupDocument.of(reader.group(body.group), reader),
        None if topic is None else TopicDocument.of(topic),
        None if body.fault is None else FaultDocument.of(service.fault(body.fault)),
        None if body.script is None else script_document(service, script_of(service, body.script)),
    )


def _checked(body: WaitBody) -> WaitKind:
    """Raises Problem."""
    kind = KINDS.get(body.for_)
    if kind is None:
        raise wrong_value("for", f"there is no wait for {body.for_[:60]!r}{nearest(body.for_[:60], KINDS)}")
    given = _given(body)
    for name in kind.required:
        if name not in given:
            raise wrong_value(name, f"it is missing: {body.for_} needs {', '.join(kind.required)}")
    for name in given:
        if name not in (*kind.required, *kind.optional, *ALWAYS):
            raise wrong_value(name, f"{body.for_} takes {', '.join((*kind.required, *kind.optional))}")
    for name in ("members", "generation", "lag", "count", "hits", "ms"):
        value = getattr(body, name)
        if value is not None and value < 0:
            raise wrong_value(name, f"{value}, expected 0 or more")
    return kind


def _given(body: WaitBody) -> Iterable[str]:
    return [json_name(name) for name in WaitBody.__dataclass_fields__ if getattr(body, name) is not None]


def _text(value: str | None) -> str:
    assert value is not None, "it was looked at"
    return value


def _offsets(body: WaitBody) -> dict[int, int] | None:
    """By partition. Raises Problem."""
    return None if body.offsets is None else {_partition(name): offset for name, offset in body.offsets.items()}


def _partition(name: str) -> int:
    """Raises Problem."""
    if not (name.isascii() and name.isdecimal() and len(name) < 10):
        raise wrong_value(f"offsets.{name[:60]}", "expected the number of a partition")
    return int(name)


_ABOUT: Final = "Wait until something holds; 408 says why it does not."
WAIT_ROWS: Final = (Row("POST", "/v1/wait", _ABOUT, _wait, WaitBody, WaitMet, needs_brokers=False),)

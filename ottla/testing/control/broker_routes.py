"""Brokers, leaders of partitions and seeds over HTTP."""

from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from ottla.testing.control.documents import RunningBrokers, SeedDocument, TopicDocument
from ottla.testing.control.problems import missing, wrong_value
from ottla.testing.control.questions import EmptyBody, LeaderBody, RestartBody
from ottla.testing.control.router import ControlCall, Row
from ottla.testing.control.service import MS_PER_S, ControlService, check_range
from ottla.testing.seeds.seed_schema import SeedError

NUMBER_LENGTH_MAX: Final = 10
RESTART_MS_MAX: Final = 3_600_000


async def _kill(service: ControlService, call: ControlCall) -> RunningBrokers:
    return await _with_broker(service, call, "killed", service.bed.control.kill)


async def _stop(service: ControlService, call: ControlCall) -> RunningBrokers:
    return await _with_broker(service, call, "stopped", service.bed.control.stop)


async def _restart(service: ControlService, call: ControlCall) -> RunningBrokers:
    body: RestartBody = call.body
    if body.after_ms is not None:
        check_range("after_ms", body.after_ms, 0, RESTART_MS_MAX)
    after_s = None if body.after_ms is None else body.after_ms / MS_PER_S
    return await _with_broker(service, call, "restarted", lambda node_id: service.bed.control.restart(node_id, after_s))


async def _pause(service: ControlService, call: ControlCall) -> RunningBrokers:
    return await _with_broker(service, call, "paused", service.bed.control.pause)


async def _resume(service: ControlService, call: ControlCall) -> RunningBrokers:
    return await _with_broker(service, call, "resumed", service.bed.control.resume)


async def _with_broker(
    service: ControlService, call: ControlCall, done: str, act: Callable[[int], Coroutine[Any, Any, None] | None]
) -> RunningBrokers:
    """Raises Problem, NotRunningError, StartError."""
    node_id = node_id_of(service, call.path["node"])
    acting = act(node_id)
    if acting is not None:
        await acting
    service.events.add(f"broker_{done}", node=node_id)
    return RunningBrokers(list(service.bed.hosted.parts()))


def node_id_of(service: ControlService, name: str) -> int:
    """Raises Problem."""
    known = service.bed.hosted.node_ids
    if _number(name) not in known:
        raise missing("broker", f"there is no broker {name[:60]!r}, only {', '.join(map(str, known))}")
    return int(name)


def _number(text: str) -> int:
    """-1 for what is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= NUMBER_LENGTH_MAX else -1


async def _move_leader(service: ControlService, call: ControlCall) -> TopicDocument:
    bed, topic, index = service.bed, call.path["topic"], _number(call.path["partition"])
    view = bed.reader.topic(topic)
    if view is None or not 0 <= index < len(view.partitions):
        raise missing("partition", f"there is no partition {topic[:200]}-{call.path['partition'][:20]}")
    body: LeaderBody = call.body
    if body.to not in bed.hosted.node_ids:
        raise wrong_value("to", f"there is no broker {body.to}, only {', '.join(map(str, bed.hosted.node_ids))}")
    await bed.control.move_leader(topic, index, body.to)
    service.events.add("leader_moved", topic=topic, partition=index, to=body.to)
    after = bed.reader.topic(topic)
    assert after is not None, "a move of a leader deletes no topic"
    return TopicDocument.of(after)


async def _load(service: ControlService, call: ControlCall) -> SeedDocument:
    seed: object = call.body
    if not isinstance(seed, dict):
        raise wrong_value("", "expected an object, as in docs/seed.schema.json")
    try:
        report = await service.bed.load(cast("dict[str, Any]", seed), with_files=False)
    except SeedError as error:
        raise wrong_value("", str(error)) from None
    service.watch_faults()
    service.events.add("seed", topics=report.topics, records=report.records, groups=report.groups)
    return SeedDocument(report.topics, report.records, report.groups)


# fmt: off
BROKER_ROWS: Final = (
    Row("POST", "/v1/brokers/{node}/kill", "As kill -9.", _kill, EmptyBody, RunningBrokers, changes=True),
    Row("POST", "/v1/brokers/{node}/stop", "Shut a broker down.", _stop, EmptyBody, RunningBrokers, changes=True),
    Row("POST", "/v1/brokers/{node}/restart", "Start a broker again.", _restart, RestartBody, RunningBrokers,
        changes=True, needs_brokers=False),
    Row("POST", "/v1/brokers/{node}/pause", "As SIGSTOP.", _pause, EmptyBody, RunningBrokers, changes=True),
    Row("POST", "/v1/brokers/{node}/resume", "As SIGCONT.", _resume, EmptyBody, RunningBrokers, changes=True),
    Row("POST", "/v1/partitions/{topic}/{partition}/leader", "Move the leader of a partition.", _move_leader,
        LeaderBody, TopicDocument, changes=True),
    Row("PUT", "/v1/seed", "Load topics, records, groups and rules (docs/seed.schema.json).", _load, Any, SeedDocument,
        changes=True),
)
# fmt: on

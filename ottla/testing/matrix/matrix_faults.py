"""The faults that tests are run again under: each acts once, on the first request that it is about, and leaves the rest
to the broker."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.broker.config.options import ConfigError
from ottla.testing.clock.sessions import EXPIRE
from ottla.testing.faults.actions import Action, Call, Delay, Disconnect, Error
from ottla.testing.faults.calls import FaultCall
from ottla.testing.faults.rule_text import parse_line
from ottla.testing.faults.rule_values import RuleError, nearest
from ottla.testing.faults.rules import FAMILIES, UNLIMITED, parse_rule
from ottla.timer.clock import TimerKind

if TYPE_CHECKING:
    from ottla.testing.testbed import Testbed

TOPIC_UNKNOWN_S: Final = 0.2
SLOW_MS: Final = 100

Proceed: TypeAlias = Callable[[], Awaitable[Any]]
Happening: TypeAlias = Callable[["Testbed", int], Awaitable[None]]
"""What happens to a testbed when a request has come to one of its brokers."""


@dataclass(frozen=True)
class MatrixFault:
    name: str
    apis: tuple[str, ...]
    """A test that uses none of them does not meet it."""
    rule: "Callable[[Testbed], dict[str, Any]]"
    brokers_min: int = 1

    def is_met_by(self, apis: Iterable[str], brokers: int) -> bool:
        return brokers >= self.brokers_min and not set(self.apis).isdisjoint(apis)


def _rule(name: str, api: str, action: Action, **fields: Any) -> MatrixFault:
    described = {"match": {"api": api, **fields}, "do": action, "times": 1}
    return MatrixFault(name, (api,), lambda _: described)


def _happening(name: str, what: Happening, at: Sequence[str], *, api: str = "", brokers_min: int = 1) -> MatrixFault:
    """`what` happens when the first request of the APIs `at` comes; `api` is what a test must use, if it is another."""

    def rule(bed: "Testbed") -> dict[str, Any]:
        return {"match": {"api": list(at)}, "do": Call(partial(_interrupted, bed, what)), "times": 1}

    return MatrixFault(name, (api,) if api else tuple(at), rule, brokers_min)


async def _interrupted(bed: "Testbed", what: Happening, call: FaultCall, proceed: Proceed) -> Any:
    await what(bed, call.node_id)
    return await proceed()


def _joins(call: FaultCall) -> bool:
    """Not the request of a new member that only asks for its id."""
    return bool(call.body.member_id) or call.version < MEMBER_ID_VERSION


def _topic_unknown(_: "Testbed") -> dict[str, Any]:
    begun: list[float] = []

    def is_early(call: FaultCall) -> bool:
        if not call.units:
            return False
        begun.append(monotonic())
        return begun[-1] - begun[0] < TOPIC_UNKNOWN_S

    match = {"api": "Metadata", "when": is_early}
    return {"match": match, "do": Error("UNKNOWN_TOPIC_OR_PARTITION"), "times": UNLIMITED}


def _slow(_: "Testbed") -> dict[str, Any]:
    return {"match": {"api": "any"}, "do": Delay(SLOW_MS), "times": UNLIMITED}


async def _expire_sessions(bed: "Testbed", _: int) -> None:
    """Broker time goes to the end of the session that ends first."""
    await bed.clock.run_next(TimerKind.SESSION, EXPIRE)


async def _kill(bed: "Testbed", node_id: int) -> None:
    _later(bed.control.kill(node_id))


async def _restart(bed: "Testbed", node_id: int) -> None:
    _later(bed.control.restart(node_id, None))


_tasks: set["asyncio.Task[None]"] = set()


def _later(coroutine: Any) -> None:
    """Beside the request, which would keep its broker from ending."""
    task = asyncio.get_running_loop().create_task(coroutine)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


async def happenings_over() -> None:
    """What has begun with a request has come to its end, with an error or without. On the loop of the brokers."""
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(each for each in _tasks if each.get_loop() is loop), return_exceptions=True)


MEMBER_ID_VERSION: Final = 4
"""From this version of JoinGroup on a new member is given its id first."""
_DATA: Final = ("Produce", "Fetch")
_LOST: Final = Disconnect("after")
MATRIX_FAULTS: Final[tuple[MatrixFault, ...]] = (
    _rule("commit-rebalance", "OffsetCommit", Error("REBALANCE_IN_PROGRESS")),
    _rule("commit-generation", "OffsetCommit", Error("ILLEGAL_GENERATION")),
    _happening("commit-session-expired", _expire_sessions, ["OffsetCommit"]),
    _rule("commit-coordinator-moved", "OffsetCommit", Error("NOT_COORDINATOR")),
    _rule("commit-answer-lost", "OffsetCommit", _LOST),
    _rule("join-coordinator-moved", "JoinGroup", Error("NOT_COORDINATOR")),
    _rule("join-answer-lost", "JoinGroup", _LOST, when=_joins),
    _rule("sync-answer-lost", "SyncGroup", _LOST),
    _rule("coordinator-loading", "OffsetFetch", Error("COORDINATOR_LOAD_IN_PROGRESS")),
    _happening("session-expired", _expire_sessions, ["Fetch"], api="JoinGroup"),
    _rule("produce-answer-lost", "Produce", _LOST),
    _rule("produce-not-leader", "Produce", Error("NOT_LEADER_OR_FOLLOWER")),
    _rule("produce-not-enough-replicas", "Produce", Error("NOT_ENOUGH_REPLICAS")),
    _rule("produce-not-enough-replicas-after-append", "Produce", Error("NOT_ENOUGH_REPLICAS_AFTER_APPEND", after=True)),
    _rule("produce-timed-out", "Produce", Error("REQUEST_TIMED_OUT", after=True)),
    _rule("fetch-not-leader", "Fetch", Error("NOT_LEADER_OR_FOLLOWER")),
    _rule("fetch-out-of-range", "Fetch", Error("OFFSET_OUT_OF_RANGE")),
    MatrixFault("topic-unknown", ("Metadata",), _topic_unknown),
    _happening("leader-killed", _kill, _DATA, brokers_min=3),
    _happening("broker-restarted", _restart, _DATA, brokers_min=3),
    MatrixFault("slow-link", FAMILIES["any"], _slow),
    *(_rule(f"disconnect-{api}", api, Disconnect("before")) for api in FAMILIES["any"]),
)


def chosen_faults(lines: Sequence[str]) -> tuple[MatrixFault, ...]:
    """Those that the ini option names: each line is the name of a fault, a pattern of names, or `NAME: RULE` for one of
    the user's own, as a line of `ottla.testing.faults.rule_text`. All where there is no line. Raises ConfigError."""
    if not lines:
        return MATRIX_FAULTS
    found: dict[str, MatrixFault] = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if colon:
            found[name.strip()] = _own_fault(name.strip(), text.strip())
            continue
        named = [each for each in MATRIX_FAULTS if fnmatchcase(each.name, line.strip())]
        if not named:
            hint = nearest(line.strip(), [each.name for each in MATRIX_FAULTS])
            raise ConfigError(f"ottla_faults_matrix: there is no fault {line.strip()!r}{hint}")
        found |= {each.name: each for each in named}
    return tuple(found.values())


def _own_fault(name: str, text: str) -> MatrixFault:
    try:
        described = parse_line(text)
        rule = parse_rule(described, new_id=lambda: name)
    except RuleError as error:
        raise ConfigError(f"ottla_faults_matrix: {name}: {error}") from None
    return MatrixFault(name, tuple(api.name for api in rule.apis), lambda _: {**described, "id": name})

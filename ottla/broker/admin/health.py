"""What a broker says of its own health (docs/operators.md §3): decisions on variables, without a request to anybody.

`BrokerLife` is kept by every broker, whether it has an admin listener or not. `readiness` looks at it and at
`HealthFacts`, which the shell reads from the parts of the broker at every probe.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ottla.cluster.image import BrokerState
from ottla.storage.recovery import RecoveryProgress

DISK_FREE_RATIO_MIN = 0.1
_GB = 1e9


class LifePhase(Enum):
    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(slots=True)
class BrokerLife:
    """How far a broker has come in its life."""

    phase: LifePhase = LifePhase.STARTING
    recovery: RecoveryProgress = field(default_factory=RecoveryProgress)
    has_served: bool = False

    def enter(self, phase: LifePhase) -> None:
        self.phase = phase
        self.has_served |= phase is LifePhase.SERVING


class HealthFacts(NamedTuple):
    """`state` is this broker's in the metadata, None where that has another incarnation of it or none."""

    state: BrokerState | None
    store_answers: bool = True
    logs: int = 0
    failed_logs: int = 0
    has_failed_checkpoint: bool = False
    oldest_disk_call_ms: int = 0
    loading_coordinators: int = 0
    not_caught_up: int | None = None
    """Replicas that have not been in the ISR since the start; None where that is not required."""
    disk_free_ratio: float | None = None
    is_dropping_events: bool = False


class Finding(NamedTuple):
    """`fatal`: the broker is not ready while it is not ok; else it is degraded."""

    name: str
    ok: bool
    text: str
    fatal: bool = True


class Check(NamedTuple):
    name: str
    ok: bool
    since_ms: int
    text: str


class CheckHistory:
    """Since when each check says what it says, as far as probes have seen."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[bool, int]] = {}

    def checks(self, findings: Iterable[Finding], now_ms: int) -> list[Check]:
        return [Check(each.name, each.ok, self._since_ms(each, now_ms), each.text) for each in findings]

    def _since_ms(self, finding: Finding, now_ms: int) -> int:
        was = self._since.get(finding.name)
        if was is None or was[0] != finding.ok:
            was = self._since[finding.name] = finding.ok, now_ms
        return now_ms - was[1]


def startup(life: BrokerLife) -> Finding:
    """docs/operators.md §3.2"""
    if life.has_served:
        return Finding("started", True, "the broker has served")
    return Finding("started", False, recovery_text(life.recovery))


def liveness(life: BrokerLife) -> Finding:
    """docs/operators.md §3.3: only what a restart of the process cures."""
    has_ended = life.phase is LifePhase.ENDED
    return Finding("running", not has_ended, "the broker has ended" if has_ended else _phase(life))


def readiness(life: BrokerLife, facts: HealthFacts | None, *, disk_stall_ms: int) -> Iterator[Finding]:
    """docs/operators.md §3.4. `facts` are None while the parts of the broker are not there."""
    yield _serving(life)
    if facts is None:
        return
    yield _membership(facts.state)
    yield _data(facts)
    stalls = facts.oldest_disk_call_ms >= disk_stall_ms
    waited = f"a call to the disk has taken {facts.oldest_disk_call_ms / 1000:.0f} s so far"
    yield Finding("disk", not stalls, waited if stalls else "calls to the disk return")
    if facts.not_caught_up is not None:
        text = f"{facts.not_caught_up} replicas have not been in sync since the start"
        yield Finding("caught up", not facts.not_caught_up, text)
    yield from _degraded(facts)


def _serving(life: BrokerLife) -> Finding:
    text = recovery_text(life.recovery) if life.phase is LifePhase.STARTING else _phase(life)
    return Finding("serving", life.phase is LifePhase.SERVING, text)


def _membership(state: BrokerState | None) -> Finding:
    is_active = state is BrokerState.ACTIVE
    text = "another process or none is registered as this broker" if state is None else f"the broker is {state.value}"
    return Finding("membership", is_active, text)


def _data(facts: HealthFacts) -> Finding:
    if facts.has_failed_checkpoint:
        return Finding("data", False, "the last checkpoint could not be written")
    all_failed = 0 < facts.logs <= facts.failed_logs
    return Finding("data", not all_failed, "every log has failed" if all_failed else "logs can be written")


def _degraded(facts: HealthFacts) -> Iterator[Finding]:
    store = "answers" if facts.store_answers else "does not answer; what is known goes on being served"
    yield Finding("metadata store", facts.store_answers, f"the metadata store {store}", fatal=False)
    text = f"{facts.failed_logs} of {facts.logs} logs have failed"
    yield Finding("logs", not facts.failed_logs, text, fatal=False)
    loading = facts.loading_coordinators
    yield Finding("coordinators", not loading, f"{loading} coordinator partitions are loading", fatal=False)
    if facts.disk_free_ratio is not None:
        text = f"{facts.disk_free_ratio:.0%} of the disk is free"
        yield Finding("disk space", facts.disk_free_ratio >= DISK_FREE_RATIO_MIN, text, fatal=False)
    text = "events are being dropped" if facts.is_dropping_events else "no event has been dropped lately"
    yield Finding("events", not facts.is_dropping_events, text, fatal=False)


def _phase(life: BrokerLife) -> str:
    return f"the broker is {life.phase.value}"


def recovery_text(progress: RecoveryProgress) -> str:
    if not progress.logs_total:
        return "the broker is starting"
    logs = f"{progress.logs_opened:,} of {progress.logs_total:,}"
    return f"recovering logs: {logs}, {progress.bytes_checked / _GB:.1f} GB checked"

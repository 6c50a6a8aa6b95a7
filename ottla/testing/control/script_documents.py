"""What is answered over HTTP about scripts: their steps, and what has run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.testing.clock.timeline import moment, moment_text

if TYPE_CHECKING:
    from ottla.testing.step_lists.running import ScriptRun, StepRun


@dataclass(frozen=True, slots=True)
class StepDocument:
    id: str
    when: str
    """As the script has it."""
    do: Mapping[str, Any]
    runs: int
    is_over: bool
    """It runs no more."""
    error: str | None
    """Of its last run that failed."""


@dataclass(frozen=True, slots=True)
class StepRunDocument:
    step: str
    at: str
    """When it ran, by the machine's clock."""
    broker_at: str
    """By that of the brokers."""
    error: str | None

    @classmethod
    def of(cls, ran: "StepRun") -> "StepRunDocument":
        return cls(ran.step, moment_text(moment(ran.transport_ms)), moment_text(moment(ran.broker_ms)), ran.error)


@dataclass(frozen=True, slots=True)
class ScriptDocument:
    id: str
    is_done: bool
    """Each step has run; one with `every` and no `times` once at least."""
    is_cancelled: bool
    steps: Sequence[StepDocument]
    ran: Sequence[StepRunDocument]
    """The oldest first, and the last 1000."""
    unused: Sequence[str]
    """In sentences: steps that have never run, and those that failed."""

    @classmethod
    def of(cls, run: "ScriptRun", unused: Sequence[str]) -> "ScriptDocument":
        steps = [
            StepDocument(each.step.id, each.step.when, each.step.source["do"], each.runs, each.is_over, each.error)
            for each in run.states
        ]
        ran = [StepRunDocument.of(each) for each in run.log]
        return cls(run.id, run.is_done, run.is_cancelled, steps, ran, unused)


@dataclass(frozen=True, slots=True)
class ScriptList:
    scripts: Sequence[ScriptDocument]
    """Since the last reset, in the order of their begins."""

"""Scripts of faults over HTTP: they are begun, looked at and cancelled."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.testing.control.problems import Problem, missing, wrong_state, wrong_value
from ottla.testing.control.questions import EmptyBody
from ottla.testing.control.router import ControlCall, Row
from ottla.testing.control.script_documents import ScriptDocument, ScriptList
from ottla.testing.control.service import ControlService
from ottla.testing.faults.rule_values import as_list

if TYPE_CHECKING:
    from ottla.testing.step_lists.running import ScriptRun, StepRun

STEPS_MAX: Final = 1000
SCRIPTS_MAX: Final = 100
"""Between two resets: what has run of each of them is kept."""


def script_of(service: ControlService, script_id: str) -> "ScriptRun":
    """Raises Problem."""
    runs = {each.id: each for each in _runs(service)}
    if script_id not in runs:
        raise missing("script", f"there is no script {script_id[:60]!r}, only {', '.join(runs) or 'none'}")
    return runs[script_id]


def script_document(service: ControlService, run: "ScriptRun") -> ScriptDocument:
    return ScriptDocument.of(run, service.bed.scripts.failed(run))


def _runs(service: ControlService) -> "Sequence[ScriptRun]":
    scripts = service.bed.scripts_if_used
    return () if scripts is None else scripts.runs


def _scripts(service: ControlService, _call: ControlCall) -> ScriptList:
    return ScriptList([script_document(service, each) for each in _runs(service)])


def _script(service: ControlService, call: ControlCall) -> ScriptDocument:
    return script_document(service, script_of(service, call.path["id"]))


async def _begin(service: ControlService, call: ControlCall) -> ScriptDocument:
    """When it is answered, the steps for now have run."""
    from ottla.testing.step_lists.steps import ScriptError, parse_script

    given = _checked_length(call.body)
    if len(_runs(service)) >= SCRIPTS_MAX:
        raise wrong_state(f"there are {SCRIPTS_MAX} scripts since the last reset already")
    try:
        run = service.bed.scripts.begin(parse_script(given))
    except ScriptError as error:
        raise Problem(400, "wrong-script", str(error)) from None
    service.events.add("script_begun", script=run.id)

    def ran(step: "StepRun") -> None:
        service.events.add("script_step", script=run.id, step=step.step, broker_ms=step.broker_ms, error=step.error)
        service.watch_faults()

    run.listeners.append(ran)
    await service.bed.clock.run_due()
    return script_document(service, run)


def _checked_length(body: Any) -> Any:
    """A script that is to be checked further. Raises Problem."""
    if not isinstance(body, list | dict):
        raise wrong_value("", "expected a list of steps, or an object with steps")
    steps = cast("dict[str, Any]", body).get("steps") if isinstance(body, dict) else cast("Any", body)
    count = len(as_list(steps))
    if count > STEPS_MAX:
        raise wrong_value("steps", f"{count} steps, at most {STEPS_MAX}")
    return cast("Any", body)


def _cancel(service: ControlService, call: ControlCall) -> ScriptDocument:
    """It is done at once, also while time is moved."""
    run = script_of(service, call.path["id"])
    service.bed.scripts.cancel(run)
    service.events.add("script_cancelled", script=run.id)
    return script_document(service, run)


# fmt: off
SCRIPT_ROWS: Final = (
    Row("GET", "/v1/scripts", "All scripts, and what has run of them.", _scripts, answer=ScriptList,
        needs_brokers=False),
    Row("POST", "/v1/scripts", "Begin a script of faults and actions (docs/scripts.md).", _begin, Any, ScriptDocument,
        status=201, changes=True, needs_brokers=False),
    Row("GET", "/v1/scripts/{id}", "A script, and what has run of it.", _script, answer=ScriptDocument,
        needs_brokers=False),
    Row("POST", "/v1/scripts/{id}/cancel", "End a script: what has not run does not run any more.", _cancel, EmptyBody,
        ScriptDocument, needs_brokers=False),
)
# fmt: on

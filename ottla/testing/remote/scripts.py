"""Scripts of brokers in another process: as data alone, for no code goes over HTTP."""

import asyncio
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, cast

from ottla.testing.clock.timeline import moment, parse_delta, parse_moment
from ottla.testing.control.client import part
from ottla.testing.control.script_documents import ScriptDocument
from ottla.testing.faults.rule_values import RuleError
from ottla.testing.faults.rules import parse_rule
from ottla.testing.remote.asking import RemoteControl, RemoteRefusal
from ottla.testing.step_lists.handles import KafkaScript
from ottla.testing.step_lists.steps import GivenScript, ScriptError, Step, parse_script

NO_SCRIPT: Final = "no-such-script"
WRONG_SCRIPT: Final = "wrong-script"
REFERRING: Final = ("after", "until")
"""What names another rule in a match."""
NO_ID: Final = "?"


def script_body(given: GivenScript) -> list[Any]:
    """The steps as JSON has them. Raises ScriptError, for functions too, and OSError for a file."""
    return [_step_body(step) for step in parse_script(given)]


def _step_body(step: Step) -> Any:
    body = _plain(step.source)
    if step.do == "fault" and not _is_json(body):
        try:
            body["do"] = {"fault": _rule_body(step.given)}
        except RuleError as error:
            raise ScriptError(f"step {step.id!r}: do.fault: {error}") from None
    return body


def _rule_body(given: Mapping[str, Any]) -> dict[str, Any]:
    """Raises RuleError."""
    match: Any = given.get("match")
    fields: dict[str, Any] = dict(cast("Mapping[str, Any]", match)) if isinstance(match, Mapping) else {}
    referred = [fields[name] for name in REFERRING if isinstance(fields.get(name), str)]
    described = parse_rule(given, new_id=lambda: NO_ID, known_ids=referred).to_json()
    if described["id"] == NO_ID:
        del described["id"]
    return described


def _plain(value: Any) -> Any:
    """With durations and moments as text."""
    match value:
        case Mapping():
            return {str(name): _plain(each) for name, each in cast("Any", value).items()}
        case list() | tuple():
            return [_plain(each) for each in cast("Any", value)]
        case timedelta():
            return f"{parse_delta(value)}ms"
        case datetime():
            return moment(parse_moment(value)).isoformat()
        case _:
            return value


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


def begun(control: RemoteControl, given: GivenScript) -> "RemoteScript":
    """A script whose steps for now have run. Raises ScriptError, and OSError for a file."""
    try:
        begun: ScriptDocument = control.read(ScriptDocument, "POST", "/v1/scripts", script_body(given))
    except RemoteRefusal as error:
        if error.kind != WRONG_SCRIPT:
            raise
        raise ScriptError(str(error)) from None
    return RemoteScript(control, begun)


class RemoteScript(KafkaScript):
    """Of a script that a reset has ended it says what it said last."""

    def __init__(self, control: RemoteControl, document: ScriptDocument) -> None:
        self._control = control
        self._last = document

    @property
    def runs(self) -> dict[str, int]:
        return {each.id: each.runs for each in self._now().steps}

    @property
    def is_done(self) -> bool:
        return self._now().is_done

    def unused(self) -> list[str]:
        return list(self._now().unused)

    def wait(self, *, within: float | None = None) -> None:
        __tracebackhide__ = True
        self._control.wait("script-done", within, script=self._last.id)

    async def wait_async(self, *, within: float | None = None) -> None:
        await asyncio.to_thread(self.wait, within=within)

    def cancel(self) -> None:
        self._last = self._ask("POST", "/cancel", {})

    def _now(self) -> ScriptDocument:
        self._last = self._ask("GET")
        return self._last

    def _ask(self, method: str, more: str = "", body: Any = None) -> ScriptDocument:
        try:
            shown: ScriptDocument = self._control.read(
                ScriptDocument, method, f"/v1/scripts/{part(self._last.id)}{more}", body
            )
        except RemoteRefusal as error:
            if error.kind != NO_SCRIPT:
                raise
            return self._last
        return shown

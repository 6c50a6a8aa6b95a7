"""`ottla control script`: lists of faults that come at moments of broker time, for brokers in testing mode."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ottla.cli.control_session import ControlSession, control_options
from ottla.storage.files import reason_of
from ottla.testing.control.client import part


@click.command("script")
@click.argument("script", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option("--id", "script_id", metavar="ID", help="In the place of FILE: show one that has begun.")
@click.option("--cancel", is_flag=True, help="With --id: what has not run does not run any more.")
@control_options
def script(session: ControlSession, script: Path | None, script_id: str | None, cancel: bool) -> None:
    """Begin a script of faults (docs/scripts.md), of a FILE of YAML, JSON or TOML; without it, list those that began.

    `ottla control wait script-done` waits for its end.
    """
    if (script is not None and script_id is not None) or (cancel and script_id is None):
        raise click.UsageError("expected FILE, or --id with or without --cancel, or none of them")
    if script is not None:
        _show_script(session, session.ask("POST", "/v1/scripts", _steps_of(script)))
    elif script_id is None:
        _list_scripts(session, session.ask("GET", "/v1/scripts"))
    elif cancel:
        _show_script(session, session.ask("POST", f"/v1/scripts/{part(script_id)}/cancel", {}))
    else:
        _show_script(session, session.ask("GET", f"/v1/scripts/{part(script_id)}"))


def _steps_of(path: Path) -> Any:
    """Ends the process with a sentence where there are none."""
    # Imported here: no other command parses scripts.
    from ottla.testing.remote.scripts import script_body
    from ottla.testing.step_lists.steps import ScriptError

    try:
        return script_body(path)
    except ScriptError as error:
        click.echo(f"ottla: {error}", err=True)
    except OSError as error:
        click.echo(f"ottla: cannot read {path}: {reason_of(error)}", err=True)
    sys.exit(1)


def _list_scripts(session: ControlSession, answer: Mapping[str, Any]) -> None:
    rows = [
        (each["id"], _state_of(each), sum(1 for step in each["steps"] if step["runs"]), len(each["steps"]))
        for each in answer["scripts"]
    ]
    session.show(answer, ("script", "state", "steps that ran", "steps"), rows)


def _show_script(session: ControlSession, answer: Mapping[str, Any]) -> None:
    if session.output.as_json:
        session.output.json(answer)
        return
    session.output.say(f"{answer['id']} ({_state_of(answer)})")
    last = {each["step"]: each["broker_at"] for each in answer["ran"]}
    rows = [
        (each["id"], each["when"], *_done_by(each["do"]), each["runs"], last.get(each["id"]), each["error"])
        for each in answer["steps"]
    ]
    session.output.table(("step", "when", "does", "runs", "last in broker time", "error"), rows)


def _state_of(script: Mapping[str, Any]) -> str:
    return "cancelled" if script["is_cancelled"] else "done" if script["is_done"] else "runs"


def _done_by(do: Mapping[str, Any]) -> list[str]:
    return [f"{name} {given}" for name, given in do.items()]

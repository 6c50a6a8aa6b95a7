"""The command line in this process."""

import json
from typing import Any

from click.testing import CliRunner, Result

from ottla.cli.app import cli
from tests.cli.fake_broker import FakeBroker


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, prog_name="ottla", input=stdin)


def run_at(broker: FakeBroker, *arguments: str) -> Result:
    return run(*arguments, "--bootstrap", broker.bootstrap, "--request-timeout", "5")


def output_of(broker: FakeBroker, *arguments: str, status: int = 0) -> str:
    result = run_at(broker, *arguments)
    assert result.exit_code == status, result.output
    return result.stdout


def json_of(broker: FakeBroker, *arguments: str, status: int = 0) -> Any:
    return json.loads(output_of(broker, *arguments, "--json", status=status))


def refusal_of(broker: FakeBroker, *arguments: str) -> str:
    """What a command that fails says, without click's prefix."""
    result = run_at(broker, *arguments)
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("Error: ")
    return result.stderr.removeprefix("Error: ").rstrip()

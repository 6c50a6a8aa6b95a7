"""The command line in this process, at a broker in this process."""

import json
from typing import Any, Protocol

from click.testing import Result

from tests.cli.runner import run


class Bootstrap(Protocol):
    @property
    def bootstrap(self) -> str: ...


def run_at(broker: Bootstrap, *arguments: str, stdin: str | None = None) -> Result:
    return run(*arguments, "--bootstrap", broker.bootstrap, stdin=stdin)


def output_of(broker: Bootstrap, *arguments: str, stdin: str | None = None) -> str:
    result = run_at(broker, *arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def json_of(broker: Bootstrap, *arguments: str) -> Any:
    return json.loads(output_of(broker, *arguments, "--json"))


def refusal_of(broker: Bootstrap, *arguments: str) -> str:
    result = run_at(broker, *arguments)
    assert result.exit_code == 1, result.output
    return result.stderr.removeprefix("Error: ").rstrip()

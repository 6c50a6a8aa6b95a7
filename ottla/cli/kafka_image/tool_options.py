"""Options of Kafka's command-line tools, and how a tool of ours runs an `ottla` command.

An option that a tool does not have is refused by name: a script that needs it is to fail there, and not later, by what
was left undone.
"""

import contextlib
import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from ottla.cli.output import harmless


class ToolError(Exception):
    """One sentence for the user of a tool."""


class Known(NamedTuple):
    """The options of a tool: those that are followed by a value, and those that stand by themselves."""

    values: frozenset[str]
    flags: frozenset[str]


CONNECTION = ("--bootstrap-server", "--command-config")


def known(values: str, flags: str = "") -> Known:
    """Of names parted by blanks, beside those of a connection."""
    return Known(frozenset((*CONNECTION, *values.split())), frozenset(flags.split()))


class Given:
    """The options of one call; a repeated one has several values."""

    def __init__(self, tool: str, values: Mapping[str, Sequence[str]]) -> None:
        self._tool = tool
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def all(self, name: str) -> Sequence[str]:
        return self._values.get(name, ())

    def last(self, *names: str) -> str | None:
        """Of options that mean the same."""
        return next((self._values[name][-1] for name in names if self._values.get(name)), None)

    def required(self, *names: str) -> str:
        """Raises ToolError."""
        value = self.last(*names)
        if value is None:
            raise ToolError(f"{self._tool} needs {names[0]}")
        return value

    def one_of(self, *actions: str) -> str:
        """Raises ToolError."""
        found = [name for name in actions if name in self._values]
        if len(found) != 1:
            raise ToolError(f"{self._tool} needs one of {', '.join(actions)}")
        return found[0]

    def connection(self, *further: str) -> list[str]:
        """For an `ottla` command: `further` are other names that the file of client properties may have."""
        servers = self.last("--bootstrap-server", "--broker-list")
        config = self.last("--command-config", *further)
        # Kafka's clients let a protocol pass before an address.
        addresses = [] if servers is None else [each.rpartition("://")[2] for each in servers.split(",")]
        return [
            *(("--bootstrap", ",".join(addresses)) if addresses else ()),
            *(("--command-config", config) if config is not None else ()),
        ]


def parsed(tool: str, arguments: Sequence[str], options: Known) -> Given:
    """`--name value` and `--name=value`. Raises ToolError for what the tool does not know."""
    values: dict[str, list[str]] = {}
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, text = argument.partition("=")
        if name in options.flags and not equals:
            values.setdefault(name, [])
            continue
        if name not in options.values:
            raise ToolError(f"{tool} does not know {name} here")
        value = text if equals else next(remaining, None)
        if value is None:
            raise ToolError(f"{tool}: {name} needs a value")
        values.setdefault(name, []).append(value)
    return Given(tool, values)


def assignments(tool: str, texts: Sequence[str]) -> dict[str, str]:
    """`key=value,key=[a,b]`, as kafka-configs takes them. Raises ToolError."""
    found: dict[str, str] = {}
    for text in texts:
        for part in _split(text):
            name, equals, value = part.partition("=")
            if not equals:
                raise ToolError(f"{tool}: {part!r} is not KEY=VALUE")
            is_list = value.startswith("[") and value.endswith("]")
            found[name.strip()] = value[1:-1] if is_list else value
    return found


def _split(text: str) -> list[str]:
    """At commas outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part.strip()]


def run_ottla(*arguments: str) -> int:
    """The exit status of an `ottla` command in this process."""
    from ottla.cli.app import cli

    try:
        return cli.main(list(arguments), prog_name="ottla", standalone_mode=False) or 0
    except click.ClickException as error:
        raise ToolError(error.format_message()) from error
    except click.Abort:
        return 1


def say_of_ottla(sentence: str, *arguments: str) -> int:
    """Runs an `ottla` command, and prints `sentence` in place of what it prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        status = run_ottla(*arguments)
    if status == 0:
        print(sentence)
    return status


def json_of_ottla(*arguments: str) -> Any:
    """What an `ottla` command prints with --json. Raises ToolError."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = run_ottla(*arguments, "--json")
    if status != 0:
        raise ToolError(f"ottla {arguments[0]} ended with status {status}")
    return json.loads(printed.getvalue())


def print_lines(lines: Sequence[str]) -> int:
    try:
        print("\n".join(map(harmless, lines)), flush=True)
    except BrokenPipeError:
        # The interpreter flushes standard output once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0

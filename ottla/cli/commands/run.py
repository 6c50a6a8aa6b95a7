"""`ottla run -- COMMAND`: a broker around any program. What it is made of is imported when it runs."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

# `ottla.cli.main` calls it without the group that has the first two of these for all other commands.
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110, "allow_interspersed_args": False}
PROFILES = ("test", "kafka")
UNUSED_FAULTS = ("error", "warn", "ignore")
AUDITS = ("errors", "all", "off")
BOOTSTRAP = "{bootstrap}"


def _pairs(what: str, values: Sequence[str], *, separator: str, default: str | None = None) -> dict[str, str]:
    """Names and texts; `default` is the text of a name that stands alone. Raises click.BadParameter."""
    pairs: dict[str, str] = {}
    for value in values:
        name, found, text = value.rpartition(separator) if separator == ":" else value.partition(separator)
        if not found and default is not None:
            name, text = value, default
        elif not found:
            name = ""
        if not name:
            raise click.BadParameter(f"{value!r} is not {what}")
        if name in pairs:
            raise click.BadParameter(f"{name} is given twice")
        pairs[name] = text
    return pairs


def _settings(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    return _pairs("NAME=VALUE", values, separator="=")


def _variables(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    variables = _pairs("NAME or NAME=TEXT", values, separator="=", default=BOOTSTRAP)
    for name, text in variables.items():
        named = re.search(r"\{[a-z_]+\}", text, re.IGNORECASE)
        # Beside the address, other braces are the program's own.
        if named is not None and BOOTSTRAP not in text:
            raise click.BadParameter(f"{name}={text}: nothing stands for {named[0]}, only {BOOTSTRAP} for the address")
    return variables


def _topics(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> dict[str, int]:
    what = "NAME:PARTITIONS"
    topics: dict[str, int] = {}
    for name, count in _pairs(what, values, separator=":").items():
        if not (count.isascii() and count.isdecimal() and int(count)):
            raise click.BadParameter(f"'{name}:{count}' is not {what}")
        topics[name] = int(count)
    return topics


def kafka_release(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """A callback of options with a VERSION of Kafka. Raises click.BadParameter."""
    if value is None:
        return None
    from ottla.testing.kafka_releases import release_of

    try:
        return release_of(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("run", context_settings=CONTEXT)
@click.option("--env", "variables", metavar="NAME[=TEXT]", multiple=True, callback=_variables,
              help="Another variable for the address, or a text with {bootstrap} in it; repeatable.")  # fmt: skip
@click.option("--brokers", metavar="N", type=click.IntRange(min=1), default=1, show_default=True,
              help="How many brokers; with several, topics have up to three replicas.")  # fmt: skip
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, callback=_settings,
              help="One of Kafka's server properties; repeatable.")  # fmt: skip
@click.option("--profile", type=click.Choice(PROFILES), default="test", show_default=True,
              help="test: groups form at once, internal topics are small; kafka: Kafka's defaults.")  # fmt: skip
@click.option("--topic", "topics", metavar="NAME:PARTITIONS", multiple=True, callback=_topics,
              help="A topic that is there when the command starts; repeatable.")  # fmt: skip
@click.option("--seed-file", metavar="FILE", type=click.Path(path_type=Path),
              help="What is there at the start: topics with records, groups, users (docs/isolation.md).")  # fmt: skip
@click.option("--faults", "faults_file", metavar="FILE", type=click.Path(path_type=Path),
              help="Rules by which requests fail, as JSON or YAML (docs/faults.md).")  # fmt: skip
@click.option("--fault", "fault_lines", metavar="RULE", multiple=True,
              help="Such a rule in one line: api=Produce,topic=orders,drop=response; repeatable.")  # fmt: skip
@click.option("--unused-faults", type=click.Choice(UNUSED_FAULTS), default="error", show_default=True,
              help="For rules that never acted while the command succeeded: error is status 3.")  # fmt: skip
@click.option("--audit", type=click.Choice(AUDITS), default="errors", show_default=True,
              help="errors: faults of the broker are status 3; all: those of the command's clients too.")  # fmt: skip
@click.option("--seed", metavar="N", type=click.IntRange(min=0),
              help="Of what rules leave to chance. Default: drawn; standard error has it after a failure.")  # fmt: skip
@click.option("--capture", "capture_file", metavar="FILE", type=click.Path(path_type=Path),
              help="Write what the command and the broker send each other to FILE (docs/wire.md).")  # fmt: skip
@click.option("--coverage", "has_coverage", is_flag=True,
              help="Print in three lines what was exercised of the protocol (docs/audit.md).")  # fmt: skip
@click.option("--coverage-file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="Write all of that to FILE, as JSON.")  # fmt: skip
@click.option("--coverage-baseline", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Such a file: what is in it and is not exercised now is status 3.")  # fmt: skip
@click.option("--coverage-target", metavar="VERSION", callback=kafka_release,
              help="Print what of it this release of Kafka does not have, as 3.7.")  # fmt: skip
@click.option("--data", metavar="DIR", type=click.Path(exists=True, file_okay=False),
              help="Where the data directory is made and removed. Default: memory, where there is room.")  # fmt: skip
@click.option("--report", "has_report", is_flag=True,
              help="When the command fails, print groups, requests, faults and the log on standard error.")  # fmt: skip
@click.argument("command", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def run_command(**values: Any) -> None:
    """Run a command with a broker of its own, which is gone afterwards.

    `ottla run -- go test ./...`: the command finds the address in KAFKA_BOOTSTRAP_SERVERS, and in OTTLA_CONTROL_URL
    and OTTLA_CONTROL_TOKEN what it controls the broker with (docs/control.md). Its input and output are its own;
    SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to it.

    The exit status is the command's, 128 + N where signal N ended it, 3 where it was 0 and a fault rule never acted,
    the audit found errors, or coverage is lost, 126 or 127 where it cannot be executed or does not exist, 1 where the
    broker cannot start, and 2 for wrong usage.
    """
    # Imported here: the list of all commands needs none of the testing kit, and wrong usage no broker.
    from ottla.cli.operations.run import RunOptions, status_of

    sys.exit(status_of(RunOptions(**values)))

"""What every command that talks to a broker shares: its options, its connection, and how it fails."""

import asyncio
import functools
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from ottla.cli.client import Client
from ottla.cli.failures import INTERRUPTED_STATUS, ClientError, Interrupted
from ottla.cli.output import Output
from ottla.protocol.address import Address, parse_addresses

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Session:
    bootstrap: Sequence[Address]
    timeout_s: float
    output: Output

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(map(str, self.bootstrap))

    def run(self, action: Callable[[Client], Awaitable[Result]]) -> Result:
        """Do something with a connected client; what goes wrong ends the command with one sentence."""

        async def connected() -> Result:
            async with Client(self.bootstrap, self.timeout_s) as client:
                return await action(client)

        return run_to_end(connected())


class _Interruption(click.ClickException):
    exit_code = INTERRUPTED_STATUS


def run_to_end(work: Coroutine[Any, Any, Result]) -> Result:
    try:
        return asyncio.run(work)
    except ClientError as error:
        kind = _Interruption if isinstance(error, Interrupted) else click.ClickException
        raise kind(str(error)) from error
    except KeyboardInterrupt:
        # Where a command does not end by itself at Ctrl-C.
        sys.exit(INTERRUPTED_STATUS)


def _parse_bootstrap(context: click.Context, parameter: click.Parameter, value: str) -> list[Address]:
    try:
        return parse_addresses(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def broker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--bootstrap`, `--timeout` and `--json`, and hand them over as its first argument, a Session."""

    @click.option(
        "--bootstrap",
        metavar="HOST:PORT[,...]",
        envvar="OTTLA_BOOTSTRAP",
        show_envvar=True,
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        callback=_parse_bootstrap,
        help="Brokers to ask first.",
    )
    @click.option(
        "--request-timeout",
        "timeout_s",
        metavar="SECONDS",
        type=click.FloatRange(min=0, min_open=True),
        default=15,
        show_default=True,
        help="How long to wait for an answer.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
    @functools.wraps(command)
    def with_session(*, bootstrap: list[Address], timeout_s: float, as_json: bool, **values: Any) -> None:
        command(Session(bootstrap, timeout_s, Output(as_json)), **values)

    return with_session


def parse_settings(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """A click callback for repeated KEY=VALUE options."""
    settings: dict[str, str] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE", context, parameter)
        settings[key] = text
    return settings

"""What every command that talks to a broker shares: its options, its client, and how it fails."""

import asyncio
import functools
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from ottla.cli.client import Client, ClientConfig
from ottla.cli.failures import INTERRUPTED_STATUS, ClientError, Interrupted
from ottla.cli.login import LOGIN_PARAMETERS, TLS_PARAMETERS, login_options, read_login, read_tls, tls_options
from ottla.cli.names import DEFAULT_BOOTSTRAP
from ottla.cli.output import Output, harmless
from ottla.protocol.address import Address, parse_addresses

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Session:
    config: ClientConfig
    output: Output

    def run(self, action: Callable[[Client], Awaitable[Result]]) -> Result:
        """Run `action` with a connected client; an error ends the command with one sentence."""

        async def connected() -> Result:
            async with self.config.client() as client:
                return await action(client)

        return run_to_end(connected())


class _Interruption(click.ClickException):
    exit_code = INTERRUPTED_STATUS


def run_to_end(work: Coroutine[Any, Any, Result]) -> Result:
    try:
        return asyncio.run(_interruptible(work))
    except ClientError as error:
        kind = _Interruption if isinstance(error, Interrupted) else click.ClickException
        raise kind(harmless(str(error))) from error
    except (KeyboardInterrupt, asyncio.CancelledError):
        # A command that does not handle Ctrl-C itself.
        sys.exit(INTERRUPTED_STATUS)


async def _interruptible(work: Coroutine[Any, Any, Result]) -> Result:
    """The handler that `asyncio.run` has does not wake a loop that is about to wait: Ctrl-C would be seen at its next
    event, which may be the end of a timeout."""
    task = asyncio.current_task()
    if task is None or threading.current_thread() is not threading.main_thread():
        return await work
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await work
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def parse_bootstrap(context: click.Context, parameter: click.Parameter, value: str) -> list[Address]:
    try:
        return parse_addresses(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def broker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--bootstrap`, the options of a login and of TLS, `--request-timeout` and `--json`, and pass what
    they say as its first argument, a Session."""

    @click.option(
        "--bootstrap",
        metavar="HOST:PORT[,...]",
        envvar="OTTLA_BOOTSTRAP",
        show_envvar=True,
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        callback=parse_bootstrap,
        help="Brokers to connect to first.",
    )
    @login_options
    @tls_options
    @click.option(
        "--request-timeout",
        "timeout_s",
        metavar="SECONDS",
        type=click.FloatRange(min=0, min_open=True),
        default=15,
        show_default=True,
        help="Maximum time to wait for a response.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
    @functools.wraps(command)
    def with_session(*, bootstrap: list[Address], timeout_s: float, as_json: bool, **values: Any) -> None:
        login = {name: values.pop(name) for name in (*LOGIN_PARAMETERS, *TLS_PARAMETERS)}
        command(Session(_client_config(bootstrap, timeout_s, login), Output(as_json)), **values)

    return with_session


def _client_config(bootstrap: list[Address], timeout_s: float, login: Mapping[str, Any]) -> ClientConfig:
    context = click.get_current_context()
    try:
        credentials, properties = read_login(login)
        tls = read_tls(login, properties)
        if context.get_parameter_source("bootstrap") is ParameterSource.DEFAULT:
            bootstrap = properties.bootstrap or bootstrap
    except ValueError as error:
        raise click.UsageError(str(error), context) from error
    for name in properties.without_meaning:
        click.echo(f"Warning: {login['command_config']}: {name} means nothing to this command", err=True)
    return ClientConfig(bootstrap, timeout_s, credentials, tls)

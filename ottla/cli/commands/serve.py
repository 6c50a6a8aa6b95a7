"""`ottla serve` as click sees it."""

import sys
from typing import Any

import click

from ottla.cli.serve_options import OPTIONS, ServeOption, serve, usage_error


def _click_option(option: ServeOption) -> click.Option:
    kind: Any = None
    if option.choices:
        kind = click.Choice(option.choices)
    elif option.is_number:
        kind = click.IntRange(min=0)
    return click.Option(
        [option.name, option.key],
        help=option.help,
        metavar=option.metavar,
        default=option.default,
        type=kind,
        is_flag=option.is_flag,
        multiple=option.is_repeated,
        show_default=not option.is_flag and option.default not in (None, ()),
    )


def _serve(**values: Any) -> None:
    wrong = usage_error(values)
    if wrong is not None:
        name, sentence = wrong
        raise click.BadParameter(sentence, param_hint=name)
    sys.exit(serve(values))


serve_command = click.Command(
    "serve",
    callback=_serve,
    params=[_click_option(option) for option in OPTIONS],
    help="Run a broker, or a cluster of several in one process.\n\nSIGTERM, SIGINT and SIGHUP stop it cleanly; under "
    "nohup, SIGHUP does nothing.\n\nPrints one line to "
    "standard output when it accepts connections: `ready bootstrap=HOST:PORT[,...] cluster_id=... startup_ms=... "
    "listeners=NAME://HOST:PORT[,...]`, and `admin=http://HOST:PORT` where there is an admin listener. With "
    "--secure, lines that say how clients connect come behind it.",
)

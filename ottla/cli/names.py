"""Names: how commands are found and listed, and how the shell completes those of topics, groups and
transactional ids.

They are asked of the broker that the command would talk to."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from os import environ
from pathlib import Path
from typing import Any

import click

from ottla.broker.config.client_properties import FILE_VARIABLE
from ottla.cli.client import Client
from ottla.cli.failures import ClientError
from ottla.cli.login import read_login, read_tls
from ottla.protocol.address import parse_addresses

# Of the list of commands; click cuts a longer sentence.
SENTENCE_MAX = 1000
# A shell that waits longer seems to hang.
WITHIN_S = 1.0
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
# What bash takes as it stands, as one word that is no option: it puts completed words into the line without quotes, and
# clients choose the names of groups.
_PLAIN_NAME = re.compile(r"[\w.:@%+/=,][\w.:@%+/=,-]*")


class CommandGroup(click.Group):
    """Its commands are also found by their singular or plural."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        names = self.list_commands(ctx)
        if cmd_name in names:
            return self.find_command(ctx, cmd_name)
        other = cmd_name[:-1] if cmd_name.endswith("s") else f"{cmd_name}s"
        return self.find_command(ctx, other) if other in names else None

    def find_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command with exactly this name."""
        return super().get_command(ctx, name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No such command {name!r}.{_guess(name, self.list_commands(ctx), self._found_below(ctx, name))}")
        return super().resolve_command(ctx, args)

    def _found_below(self, ctx: click.Context, name: str) -> list[str]:
        """Commands of that name in the groups that this one has."""
        groups = ((each, self.find_command(ctx, each)) for each in self.list_commands(ctx))
        return [f"{each} {name}" for each, group in groups if isinstance(group, click.Group) and name in group.commands]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: list[tuple[str, str]] = []
        for name in self.list_commands(ctx):
            command = self.find_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(SENTENCE_MAX)))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def _guess(name: str, names: list[str], below: list[str]) -> str:
    close = get_close_matches(name, names, n=3) + below
    if not close:
        return f" There are {', '.join(names)}."
    return f" Did you mean {' or '.join(close)}?"


def complete_topics(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Internal ones only where an underscore begins the name."""
    from ottla.cli.operations.topics import list_topics

    async def names(client: Client) -> list[str]:
        return [
            topic.name for topic in await list_topics(client) if incomplete.startswith("_") or not topic.is_internal
        ]

    return _matching(ctx, incomplete, names)


def complete_groups(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from ottla.cli.operations.groups import list_groups

    async def names(client: Client) -> list[str]:
        return [group.group_id for group in await list_groups(client)]

    return _matching(ctx, incomplete, names)


def complete_transactional_ids(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from ottla.cli.operations.transactions import list_transactions

    async def names(client: Client) -> list[str]:
        return [each.transactional_id for each in await list_transactions(client)]

    return _matching(ctx, incomplete, names)


def complete_users(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from ottla.cli.operations.users import list_users

    async def names(client: Client) -> list[str]:
        return [user.name for user in await list_users(client)]

    return _matching(ctx, incomplete, names)


def _matching(ctx: click.Context, incomplete: str, names: Callable[[Client], Awaitable[list[str]]]) -> list[str]:
    """Nothing where no broker answers: an error would stand in the middle of what is being typed."""
    try:
        found = asyncio.run(_asked(ctx, names))
    except (ClientError, TimeoutError, ValueError, OSError):
        return []
    return [name for name in found if name.startswith(incomplete) and _PLAIN_NAME.fullmatch(name)]


async def _asked(ctx: click.Context, names: Callable[[Client], Awaitable[list[str]]]) -> list[str]:
    file = ctx.params.get("command_config") or environ.get(FILE_VARIABLE)
    login, properties = read_login({**ctx.params, "command_config": file and Path(file)})
    tls = read_tls(ctx.params, properties)
    given: Any = (
        ctx.params.get("bootstrap") or environ.get("OTTLA_BOOTSTRAP") or properties.bootstrap or DEFAULT_BOOTSTRAP
    )
    bootstrap = parse_addresses(given) if isinstance(given, str) else given
    async with asyncio.timeout(WITHIN_S), Client(bootstrap, WITHIN_S, login, tls) as client:
        return await names(client)

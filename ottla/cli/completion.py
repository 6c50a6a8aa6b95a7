"""Names of topics and groups for the shell to complete, asked of the broker that the command would talk to."""

import asyncio
from collections.abc import Awaitable, Callable
from os import environ
from typing import Any

import click

from ottla.cli.client import Client
from ottla.cli.failures import ClientError
from ottla.protocol.address import parse_addresses

# A shell that waits longer seems to hang.
WITHIN_S = 1.0
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


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


def _matching(ctx: click.Context, incomplete: str, names: Callable[[Client], Awaitable[list[str]]]) -> list[str]:
    """Nothing where no broker answers: an error would stand in the middle of what is being typed."""
    try:
        return [name for name in asyncio.run(_asked(ctx, names)) if name.startswith(incomplete)]
    except (ClientError, TimeoutError, ValueError, OSError):
        return []


async def _asked(ctx: click.Context, names: Callable[[Client], Awaitable[list[str]]]) -> list[str]:
    given: Any = ctx.params.get("bootstrap") or environ.get("OTTLA_BOOTSTRAP") or DEFAULT_BOOTSTRAP
    bootstrap = parse_addresses(given) if isinstance(given, str) else given
    async with asyncio.timeout(WITHIN_S), Client(bootstrap, WITHIN_S) as client:
        return await names(client)

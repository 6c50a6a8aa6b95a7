"""Waiting for partitions that are being moved, and showing how far they have come."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Mapping

from ottla.cli.client import Client, TopicPartition
from ottla.cli.operations import partitions as operations
from ottla.cli.progress import show_bar

POLL_S = 0.5


async def moved(
    client: Client, targets: Mapping[TopicPartition, tuple[int, ...]], wait_s: float | None
) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of the partitions when no move of them is under way any more, or, not before, `wait_s` are over."""
    progress = _Progress(len(targets))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_s), progress.shown():
            while moves := await operations.list_moves(client, targets):
                progress.take(len(moves), await operations.records_to_copy(client, moves))
                await asyncio.sleep(POLL_S)
    return await operations.replicas_of(client, targets)


class _Progress:
    """On a terminal it is shown as a bar, elsewhere not at all."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._under_way = total
        self._to_copy: int | None = None

    def take(self, under_way: int, to_copy: int | None) -> None:
        self._under_way = under_way
        self._to_copy = to_copy

    @contextlib.asynccontextmanager
    async def shown(self) -> AsyncGenerator[None]:
        bar = asyncio.create_task(show_bar(self._total, self.state)) if sys.stderr.isatty() else None
        try:
            yield
        finally:
            if bar is not None:
                bar.cancel()
                await asyncio.wait([bar])

    def state(self) -> tuple[int, str]:
        """How many are moved, and a sentence."""
        arrived = self._total - self._under_way
        to_copy = "" if self._to_copy is None else f", {self._to_copy:,} records to copy"
        return arrived, f"{arrived} of {self._total} partitions moved{to_copy}"

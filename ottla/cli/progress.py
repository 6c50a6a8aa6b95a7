"""Progress of long work: on standard error, and only where somebody watches."""

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
# A bar for less would be gone before it is read.
WORTH_A_BAR = 20
REFRESH_S = 0.1


def progress(items: Sequence[Item], doing: str) -> Iterator[Item]:
    """The items, with a bar that shows how many have been taken."""
    if len(items) < WORTH_A_BAR or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=doing, console=Console(stderr=True), transient=True)


async def show_bar(total: int | None, state: Callable[[], tuple[int, str]]) -> None:
    """Show how far `state` has come and what it says of itself, until cancelled; the bar is gone then."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", total=total)
        while True:
            completed, description = state()
            bar.update(task, completed=completed, description=description, refresh=True)
            await asyncio.sleep(REFRESH_S)

"""Progress of long work: on standard error, and only where somebody watches."""

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
# A bar for less would be gone before it is read.
WORTH_A_BAR = 20


def progress(items: Sequence[Item], doing: str) -> Iterator[Item]:
    """The items, with a bar that shows how many have been taken."""
    if len(items) < WORTH_A_BAR or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=doing, console=Console(stderr=True), transient=True)

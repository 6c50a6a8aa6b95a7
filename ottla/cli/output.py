"""What commands print: rich tables on a terminal, aligned text in a pipe, JSON for scripts; and progress on standard
error, if that is a terminal."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import click

NOTHING = "-"
TAB = 0x09
# A shorter bar would be gone before it is read.
PROGRESS_ITEMS_MIN = 20
REFRESH_S = 0.1

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Output:
    as_json: bool

    def json(self, value: Any) -> None:
        lines = json.dumps(value, ensure_ascii=False, indent=2).split("\n")
        click.echo("\n".join(map(harmless, lines)))

    def say(self, sentence: str) -> None:
        """A sentence for people; scripts that asked for JSON do not get it."""
        if not self.as_json:
            click.echo(harmless(sentence))

    def lines(self, lines: Iterable[str]) -> bool:
        """For people and scripts alike. False when standard output is closed, as after `| head`."""
        return self._echo(map(harmless, lines), nl=True)

    def styled_lines(self, lines: Iterable[str]) -> bool:
        """As `lines`, with colours on a terminal: what others have chosen in them is to be `harmless` before."""
        return self._echo(lines, nl=True)

    def pieces(self, pieces: Iterable[bytes]) -> bool:
        """Of a file, or records: to the byte. False as with `lines`."""
        return self._echo(pieces, nl=False)

    def _echo(self, items: Iterable[str | bytes], *, nl: bool) -> bool:
        try:
            for item in items:
                click.echo(item, nl=nl)
            sys.stdout.flush()
        except BrokenPipeError:
            # The interpreter flushes standard output once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return False
        return True

    def facts(self, title: str, facts: Sequence[tuple[str, str]]) -> None:
        """A heading and what is known about it, one line each."""
        width = max((len(name) for name, _ in facts), default=0)
        click.echo(click.style(harmless(title), bold=True))
        for name, value in facts:
            click.echo(f"  {name.ljust(width)}  {harmless(value)}")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        cells = [[_text(value) for value in row] for row in rows]
        numeric = _numeric_columns(len(columns), cells)
        if sys.stdout.isatty():
            _print_rich(columns, cells, numeric)
        else:
            _print_plain(columns, cells, numeric)


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal; a script is not asked."""
    if not yes and sys.stdin.isatty():
        click.confirm(question, abort=True)


def _text(value: object) -> str:
    match value:
        case None | "":
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case tuple() | list():
            items = cast("Sequence[object]", value)
            return ",".join(map(_text, items)) or NOTHING
        case _:
            return harmless(str(value)).replace("\t", "\\t")


def harmless(text: str) -> str:
    """Text that others may have chosen, with escapes for what a terminal would obey, but for tabs. In JSON they mean
    the same."""
    if text.isprintable():
        return text
    from ottla.broker.logging import CONTROL_CODES

    return text.translate({code: f"\\u{code:04x}" for code in CONTROL_CODES if code != TAB})


def _numeric_columns(count: int, cells: Sequence[Sequence[str]]) -> list[bool]:
    """A column of numbers is aligned to the right; a dash says that one is not known."""
    return [
        all(row[column] == NOTHING or row[column].lstrip("-").isdecimal() for row in cells) for column in range(count)
    ]


def _print_rich(columns: Sequence[str], cells: Iterable[Sequence[str]], numeric: Sequence[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for name, is_numeric in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if is_numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell, style="dim" if cell == NOTHING else "") for cell in row))
    Console().print(table)


def _print_plain(columns: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    lines = [[name.upper().replace(" ", "-") for name in columns], *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    for line in lines:
        padded = (
            cell.rjust(width) if is_numeric else cell.ljust(width)
            for cell, width, is_numeric in zip(line, widths, numeric, strict=True)
        )
        click.echo("  ".join(padded).rstrip())


def progress(items: Sequence[Item], doing: str) -> Iterator[Item]:
    """The items, with a bar that shows how many have been taken."""
    if len(items) < PROGRESS_ITEMS_MIN or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=doing, console=Console(stderr=True), transient=True)


@asynccontextmanager
async def progress_bar(total: int | None, state: Callable[[], tuple[int, str]]) -> AsyncGenerator[None]:
    """Show how much of `total` is done and a description, as `state` gives them, until the context ends."""
    if not sys.stderr.isatty():
        yield
        return
    bar = asyncio.create_task(_draw_bar(total, state))
    try:
        yield
    finally:
        bar.cancel()
        await asyncio.wait([bar])


async def _draw_bar(total: int | None, state: Callable[[], tuple[int, str]]) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", total=total)
        while True:
            completed, description = state()
            bar.update(task, completed=completed, description=description, refresh=True)
            await asyncio.sleep(REFRESH_S)

"""Records rebalance_live.py as an animated SVG: `python examples/record_rebalance.py docs/rebalance.svg`.

Every line of a real run lights up at its moment, at SPEED times the speed, and can be read faintly before. The drawing
needs no script: each line has keyframes of its own. Where nothing moves (a viewer without animations, a reader who
prefers less motion) all lines are lit.
"""

import asyncio
import sys
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from rebalance_live import Timeline, main
from rich.console import Console
from rich.style import Style
from rich.text import Text

SPEED = 2
FAINT = 0.3
HOLD_S = 6  # How long the whole stays before it begins again.
FONT_PX, CHARACTER_PX, LINE_PX, MARGIN_PX = 13, 7.8, 17, 14
WIDTH_PX = 660
BODY_COLUMN = 12
PROMPT = "$ make rebalance"
TITLE = "A consumer group of three rebalances when members join, leave and are killed; the broker says why each time"
FONTS = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
BACKGROUND, FOREGROUND, DIM = "#0d1117", "#e6edf3", "#8b949e"
COLOURS = {
    "black": BACKGROUND,
    "cyan": "#56d4dd",
    "green": "#7ee787",
    "magenta": "#d2a8ff",
    "red": "#ff7b72",
    "yellow": "#e3b341",
}


class Line(NamedTuple):
    seconds: float
    mark: str
    body: Text


class Recording(Timeline):
    """Shows every line, and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Line] = []

    def show(self, seconds: float, mark: str, body: Text) -> None:
        self.lines.append(Line(seconds, mark, body))
        super().show(seconds, mark, body)


def drawing(lines: list[Line]) -> str:
    """The whole SVG file."""
    height = 2 * MARGIN_PX + LINE_PX * (len(lines) + 1)
    size = f'viewBox="0 0 {WIDTH_PX} {height}" width="{WIDTH_PX}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
        f'<title id="title">{TITLE}</title>',
        f"<style>\n{_styles(lines)}\n</style>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
        f'<text x="{MARGIN_PX}" y="{_baseline(0)}">{PROMPT}</text>',
        *(_line(row, line) for row, line in enumerate(lines, start=1)),
    ]
    return "\n".join(parts) + "\n</svg>\n"


def _styles(lines: list[Line]) -> str:
    whole_s = lines[-1].seconds / SPEED + HOLD_S
    rules = [
        f"text {{ font: {FONT_PX}px {FONTS}; fill: {FOREGROUND}; white-space: pre }}",
        f".d {{ fill: {DIM} }}",
        ".b { font-weight: bold }",
        "@media (prefers-reduced-motion: no-preference) {",
    ]
    for row, line in enumerate(lines, start=1):
        percent = 100 * line.seconds / SPEED / whole_s
        rules.append(
            f"@keyframes l{row} {{ 0%, {percent:.2f}% {{ opacity: {FAINT} }} {percent + 0.01:.2f}% {{ opacity: 1 }} }}"
        )
        rules.append(f"#l{row} {{ animation: l{row} {whole_s:.1f}s linear infinite }}")
    return "\n".join([*rules, "}"])


def _line(row: int, line: Line) -> str:
    y = _baseline(row)
    time = f'<tspan class="d" x="{MARGIN_PX}">{line.seconds:6.2f} s</tspan>'
    mark = f'<tspan x="{_column(BODY_COLUMN - 2)}">{line.mark}</tspan>'
    boxes, words, column = [], [], BODY_COLUMN
    for segment in line.body.render(Console(), end=""):
        style = segment.style if isinstance(segment.style, Style) else Style.null()
        if segment.text.strip():
            words.append(_words(segment.text, style, column))
        if style.bgcolor:
            boxes.append(_box(len(segment.text), style, column, y))
        column += len(segment.text)
    return f'<g id="l{row}">{"".join(boxes)}<text y="{y}">{time}{mark}{"".join(words)}</text></g>'


def _words(text: str, style: Style, column: int) -> str:
    """Every piece says where it begins and how wide it is: fonts differ in the width of a character."""
    classes = [name for name, holds in (("b", style.bold), ("d", style.dim)) if holds]
    attributes = f' class="{" ".join(classes)}"' if classes else ""
    if style.color:
        attributes += f' style="fill: {COLOURS[style.color.name]}"'
    width = f' textLength="{len(text) * CHARACTER_PX:.1f}" lengthAdjust="spacingAndGlyphs"'
    return f'<tspan x="{_column(column)}"{width}{attributes}>{escape(text)}</tspan>'


def _box(width: int, style: Style, column: int, y: int) -> str:
    assert style.bgcolor is not None, "a box has a colour"
    return (
        f'<rect x="{_column(column)}" y="{y - FONT_PX}" width="{width * CHARACTER_PX:.1f}" height="{LINE_PX - 1}" '
        f'rx="3" fill="{COLOURS[style.bgcolor.name]}"/>'
    )


def _column(column: int) -> str:
    return f"{MARGIN_PX + column * CHARACTER_PX:.1f}"


def _baseline(row: int) -> int:
    return MARGIN_PX + LINE_PX * row + FONT_PX


if __name__ == "__main__":
    recording = Recording()
    asyncio.run(main(None, recording))
    Path(sys.argv[1]).write_text(drawing(recording.lines), encoding="utf-8")

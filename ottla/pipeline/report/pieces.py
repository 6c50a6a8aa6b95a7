"""Pieces of the page as HTML that needs no script and no picture: bars are boxes, whose widths are shares of what they
are shown beside, so that the page is read at every width. What is drawn is also said, for screen readers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

COLORS = 6
# Of a row, as it is said.
SAID_MAX = 12
# A chart's own units; the page stretches it.
LAG_WIDTH, LAG_HEIGHT = 1000, 100


@dataclass(frozen=True, slots=True)
class Bar:
    """`name` is whose time it is; `style` one of the style sheet's."""

    name: str
    style: str
    from_ms: int
    until_ms: int
    is_over: bool = True

    @property
    def text(self) -> str:
        if not self.is_over:
            return f"{self.name} since {clock(self.from_ms)}"
        return f"{self.name} from {clock(self.from_ms)} to {clock(self.until_ms)}"


@dataclass(frozen=True, slots=True)
class Cell:
    """Of a table: text, or HTML that is made of text already."""

    text: str
    style: str = ""
    is_html: bool = False

    @property
    def html(self) -> str:
        style = f' class="{self.style}"' if self.style else ""
        return f"<td{style}>{self.text if self.is_html else escape(self.text)}</td>"


def timeline(rows: Sequence[tuple[str, Sequence[Bar]]]) -> str:
    """One line for each name, all on one scale of time, with a legend of the bars' names."""
    moments = [moment for _, bars in rows for bar in bars for moment in (bar.from_ms, bar.until_ms)]
    first_ms, last_ms = min(moments), max(moments)
    span_ms = max(1, last_ms - first_ms)
    lines = [_line(name, bars, first_ms, span_ms) for name, bars in rows]
    styles = {bar.name: bar.style for _, bars in rows for bar in bars}
    return f"{''.join(lines)}{_axis(first_ms, last_ms)}{legend(styles.items())}"


def legend(styles: Iterable[tuple[str, str]]) -> str:
    entries = (f'<li><b class="{style}"></b>{escape(name)}</li>' for name, style in styles)
    return f'<ul class="legend">{"".join(entries)}</ul>'


def lag_chart(group_id: str, samples: Sequence[tuple[int, int]]) -> str:
    """Moments and records, on a scale of their own."""
    first_ms, last_ms, highest = samples[0][0], samples[-1][0], max(1, *(lag for _, lag in samples))
    span_ms = max(1, last_ms - first_ms)
    points = " ".join(
        f"{(at_ms - first_ms) * LAG_WIDTH / span_ms:.0f},{LAG_HEIGHT - lag * LAG_HEIGHT / highest:.1f}"
        for at_ms, lag in samples
    )
    said = f"Lag of {group_id}: {highest:,} records at most, {samples[-1][1]:,} at the end"
    return (
        f'<p class="axis"><span>{highest:,} records behind at most</span><span>{samples[-1][1]:,} at the end</span></p>'
        f'<svg class="lag" role="img" aria-label="{escape(said)}" viewBox="0 -3 {LAG_WIDTH} {LAG_HEIGHT + 6}" '
        f'preserveAspectRatio="none"><polyline points="{points}"/></svg>{_axis(first_ms, last_ms)}'
    )


def table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """On a narrow screen it scrolls by itself, also by keyboard."""
    styles = [' class="number"' if cell.style == "number" else "" for cell in rows[0]]
    head = "".join(f'<th scope="col"{style}>{escape(name)}</th>' for name, style in zip(columns, styles, strict=True))
    body = "".join(f"<tr>{''.join(cell.html for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def shares(parts: Iterable[tuple[str, int]], whole: int) -> str:
    """Boxes beside each other, of styles and lengths; the numbers stand beside them as text."""
    boxes = (f'<i class="{style}" style="width:{_percent(length, whole)}"></i>' for style, length in parts if length)
    return f'<span class="bar" aria-hidden="true">{"".join(boxes)}</span>'


def number(value: int | None, unit: str = "") -> Cell:
    return Cell("–" if value is None else f"{value:,}{unit}", "number")


def moment(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def clock(milliseconds: int) -> str:
    return moment(milliseconds)[-8:]


def _line(name: str, bars: Sequence[Bar], first_ms: int, span_ms: int) -> str:
    said = ", ".join(bar.text for bar in bars[:SAID_MAX])
    more = f", and {len(bars) - SAID_MAX:,} more" if len(bars) > SAID_MAX else ""
    boxes = "".join(
        f'<i class="{bar.style}" title="{escape(bar.text)}" style="left:{_percent(bar.from_ms - first_ms, span_ms)};'
        f'width:{_percent(bar.until_ms - bar.from_ms, span_ms)}"></i>'
        for bar in bars
    )
    return (
        f'<div class="row"><span title="{escape(name)}">{escape(name)}</span>'
        f'<div class="track" role="img" aria-label="{escape(f"{name}: {said}{more}")}">{boxes}</div></div>'
    )


def _axis(first_ms: int, last_ms: int) -> str:
    return f'<p class="axis"><span>{moment(first_ms)}</span><span>{moment(last_ms)} UTC</span></p>'


def _percent(part: int, whole: int) -> str:
    return f"{part * 100 / max(1, whole):.3g}%"

"""Plots of the report as SVG texts."""

# The types of the plotting library are incomplete.
# pyright: basic

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from io import StringIO
from itertools import cycle
from typing import Any

from matplotlib import rc_context
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import Patch

WIDTH_IN = 10.5
JOINING, SYNCING, STABLE, OPEN = "#d1495b", "#edae49", "#c7dbe6", "#8d99ae"
BROKERS = ("#2e6f95", "#66a182", "#b388c9", "#c9a227", "#5c6784", "#7fb7be")
_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e8e8e8",
    "axes.axisbelow": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "ottla",
}
GENERATIONS_MAX = 40


def generations(rebalances: Sequence[Any]) -> str:
    """One group's latest generations from top to bottom: how long it was joining and syncing, and why it began."""
    shown = rebalances[-GENERATIONS_MAX:]

    def draw(axes: Any) -> None:
        for place, row in enumerate(shown):
            joining_s, syncing_s = (row["join_phase_ms"] or 0) / 1000, (row["sync_phase_ms"] or 0) / 1000
            axes.barh(place, joining_s, color=JOINING, height=0.7)
            axes.barh(place, syncing_s, left=joining_s, color=SYNCING, height=0.7)
            axes.text(joining_s + syncing_s, place, "  " + _why(row), va="center", fontsize=8)
        axes.set_yticks(range(len(shown)), [f"{_clock(row)}  gen {row['generation']}" for row in shown])
        axes.invert_yaxis()
        axes.set_xlabel("seconds without consuming")
        axes.set_xlim(0, max(1e-3, *(_whole_ms(row) / 1000 for row in shown)) * 1.9)
        axes.legend(
            handles=[Patch(color=JOINING, label="joining"), Patch(color=SYNCING, label="syncing")], loc="lower right"
        )

    return _svg(draw, height_in=0.9 + 0.26 * len(shown))


def durations(rebalances: Sequence[Any]) -> str:
    """Every rebalance at its time, by duration and outcome."""

    def draw(axes: Any) -> None:
        for outcome, color in (("completed", "#2e6f95"), ("superseded", SYNCING), ("emptied", OPEN)):
            rows = [row for row in rebalances if row["outcome"] == outcome and row["duration_ms"] is not None]
            if rows:
                axes.scatter(
                    [_time(row["started_ms"]) for row in rows],
                    [row["duration_ms"] / 1000 for row in rows],
                    s=22, color=color, label=f"{outcome} ({len(rows)})",
                )  # fmt: skip
        axes.set_ylabel("seconds")
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper left")
        _time_axis(axes)

    return _svg(draw, height_in=3)


def slowest(members: Sequence[Any]) -> str:
    """Who was waited for, and for how long in all."""

    def draw(axes: Any) -> None:
        names = [f"{row['client_id'] or '?'} ({row['group_id']})" for row in members]
        axes.barh(names, [row["held_up_ms"] / 1000 for row in members], color=JOINING, height=0.7)
        for place, row in enumerate(members):
            text = f"  {row['rebalances']} times, {row['worst_ms'] / 1000:.2f} s at most"
            axes.text(row["held_up_ms"] / 1000, place, text, va="center", fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("seconds that others waited")
        axes.set_xlim(0, max(1e-3, *(row["held_up_ms"] / 1000 for row in members)) * 1.5)

    return _svg(draw, height_in=0.9 + 0.28 * len(members))


def lag(samples: Sequence[Any]) -> str:
    """The lag of each group over time."""

    def draw(axes: Any) -> None:
        for group_id in dict.fromkeys(row["group_id"] for row in samples):
            rows = [row for row in samples if row["group_id"] == group_id]
            axes.plot(
                [_time(row["at_ms"]) for row in rows], [row["lag"] for row in rows], label=group_id, linewidth=1.4
            )
        axes.set_ylabel("records behind")
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper left")
        _time_axis(axes)

    return _svg(draw, height_in=3)


def leadership(terms: Sequence[Any]) -> str:
    """One line per partition: who led it from when to when, and when nobody did."""
    names = list(dict.fromkeys(row["name"] for row in terms))
    color_of = dict(zip(sorted({row["leader"] for row in terms}), cycle(BROKERS), strict=False))
    # Who leads still does so to the right edge.
    moments = [row["from_ms"] for row in terms] + [row["until_ms"] for row in terms if row["until_ms"] is not None]
    first_ms, last_ms = min(moments), max(moments)
    edge_ms = last_ms + max(1000, (last_ms - first_ms) // 20)

    def draw(axes: Any) -> None:
        def bar(name: str, from_ms: int, until_ms: int, color: str) -> None:
            begin = _time(from_ms)
            axes.barh(
                names.index(name), _time(until_ms) - begin, left=begin, color=color, height=0.7, edgecolor="white"
            )

        for row in terms:
            bar(row["name"], row["from_ms"], row["until_ms"] or edge_ms, color_of[row["leader"]])
            if row["leaderless_ms"]:
                bar(row["name"], row["from_ms"] - row["leaderless_ms"], row["from_ms"], JOINING)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        patches = [Patch(color=color, label=f"broker {leader}") for leader, color in color_of.items()]
        patches += [Patch(color=JOINING, label="no leader")] if any(row["leaderless_ms"] for row in terms) else []
        axes.legend(handles=patches, loc="lower left", bbox_to_anchor=(0, 1), ncols=8, frameon=False)
        _time_axis(axes)

    return _svg(draw, height_in=1.1 + 0.28 * len(names))


def _svg(draw: Callable[[Any], None], *, height_in: float) -> str:
    with rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        draw(figure.subplots())
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    # Without the XML declaration it can stand in a page.
    return svg[svg.index("<svg") :]


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _time_axis(axes: Any) -> None:
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _clock(row: Any) -> str:
    return f"{_time(row['started_ms']):%m-%d %H:%M:%S}"


def _whole_ms(row: Any) -> int:
    return (row["join_phase_ms"] or 0) + (row["sync_phase_ms"] or 0)


def _why(row: Any) -> str:
    reason = f": {row['client_reason']}" if row["client_reason"] else ""
    outcome = "" if row["outcome"] == "completed" else f" [{row['outcome']}]"
    held_up = ""
    if (row["slowest_ms"] or 0) >= 500:
        held_up = f", waited for {row['slowest_client_id']}"
    return f"{row['cause']}{_shortened(reason)}{held_up}{outcome}"


def _shortened(text: str, length: int = 60) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"

"""Plots of the report as SVG texts."""

# The types of the plotting library are incomplete.
# pyright: basic

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from io import StringIO
from itertools import cycle
from typing import Any

from matplotlib import dates, rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Patch

DATES: Any = dates
WIDTH_IN = 10.5
# Of SVG and CSS.
POINTS_PER_IN, PIXELS_PER_IN = 72, 96
JOINING, SYNCING, BLUE, GREY = "#d1495b", "#edae49", "#2e6f95", "#8d99ae"
BROKERS = (BLUE, "#66a182", "#b388c9", "#c9a227", "#5c6784", "#7fb7be")
_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e8e8e8",
    "axes.axisbelow": True,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "svg.fonttype": "none",
    "svg.hashsalt": "ottla",
}
GENERATIONS_MAX = 40
WORTH_A_WORD_MS = 500


def generations(title: str, rebalances: Sequence[Any]) -> str:
    """One group's latest generations from top to bottom: how long it was joining and syncing, and why it began."""
    shown = rebalances[-GENERATIONS_MAX:]

    def draw(axes: Any) -> None:
        for place, row in enumerate(shown):
            joining_s, syncing_s = (row["join_phase_ms"] or 0) / 1000, (row["sync_phase_ms"] or 0) / 1000
            axes.barh(place, joining_s, color=JOINING, height=0.7)
            axes.barh(place, syncing_s, left=joining_s, color=SYNCING, height=0.7)
            _beside(axes, joining_s + syncing_s, place, _remark(row))
        axes.set_yticks(range(len(shown)), [_what(row) for row in shown])
        axes.invert_yaxis()
        axes.set_xlabel("seconds from the cause until everybody has an assignment")
        axes.set_xlim(0, max(1e-3, *(_whole_ms(row) / 1000 for row in shown)) * 2.3)
        _legend(axes, [Patch(color=JOINING, label="joining"), Patch(color=SYNCING, label="syncing")])

    return _svg(title, draw, height_in=1.1 + 0.26 * len(shown))


def durations(title: str, rebalances: Sequence[Any]) -> str:
    """Every rebalance at its time, by duration and outcome."""

    def draw(axes: Any) -> None:
        for outcome, color in (("completed", BLUE), ("superseded", SYNCING), ("emptied", GREY)):
            rows = [row for row in rebalances if row["outcome"] == outcome and row["duration_ms"] is not None]
            if rows:
                axes.scatter(
                    [_time(row["started_ms"]) for row in rows],
                    [row["duration_ms"] / 1000 for row in rows],
                    s=22, color=color, label=f"{outcome} ({len(rows)})", clip_on=False, zorder=3,
                )  # fmt: skip
        axes.set_ylabel("seconds")
        axes.set_ylim(bottom=0)
        _legend(axes)
        _time_axis(axes)

    return _svg(title, draw, height_in=3)


def slowest(title: str, members: Sequence[Any]) -> str:
    """Who was waited for, and for how long in all."""

    def draw(axes: Any) -> None:
        names = [f"{row['client_id'] or '?'} ({row['group_id']})" for row in members]
        axes.barh(range(len(names)), [row["held_up_ms"] / 1000 for row in members], color=JOINING, height=0.7)
        for place, row in enumerate(members):
            times = "once" if row["rebalances"] == 1 else f"{row['rebalances']} times"
            _beside(axes, row["held_up_ms"] / 1000, place, f"{times}, {row['worst_ms'] / 1000:.2f} s at most")
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlabel("seconds that others waited, in all")
        axes.set_xlim(0, max(1e-3, *(row["held_up_ms"] / 1000 for row in members)) * 1.5)

    return _svg(title, draw, height_in=1.1 + 0.28 * len(members))


def lag(title: str, samples: Sequence[Any]) -> str:
    """The lag of each group over time."""

    def draw(axes: Any) -> None:
        for group_id in dict.fromkeys(row["group_id"] for row in samples):
            rows = [row for row in samples if row["group_id"] == group_id]
            moments = [_time(row["at_ms"]) for row in rows]
            axes.plot(moments, [row["lag"] for row in rows], label=group_id, linewidth=1.4, clip_on=False)
        axes.set_ylabel("records behind")
        axes.set_ylim(0, max(1, *(row["lag"] for row in samples)) * 1.05)
        _legend(axes)
        _time_axis(axes)

    return _svg(title, draw, height_in=3)


def leadership(title: str, terms: Sequence[Any]) -> str:
    """One line per partition: its leaders over time, and when it had none."""
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
        _legend(axes, patches)
        _time_axis(axes)

    return _svg(title, draw, height_in=1.1 + 0.28 * len(names))


def stacked(plots: Sequence[str]) -> str:
    """Several plots below each other as one."""
    heights_pt = [float(found[1]) for plot in plots if (found := re.search(r' height="([\d.]+)pt"', plot))]
    heights_px = [height_pt / POINTS_PER_IN * PIXELS_PER_IN for height_pt in heights_pt]
    tops_px = [sum(heights_px[:place]) for place in range(len(plots))]
    placed = [f'<g transform="translate(0 {top_px:g})">{plot}</g>' for top_px, plot in zip(tops_px, plots, strict=True)]
    size = f"{WIDTH_IN * PIXELS_PER_IN:g} {sum(heights_px):g}"
    background = '<rect width="100%" height="100%" fill="white"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}">{background}{"".join(placed)}</svg>\n'


def _svg(title: str, draw: Callable[[Any], None], *, height_in: float) -> str:
    with rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.set_title(title, loc="left")
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    # Without the XML declaration it can stand in a page.
    return svg[svg.index("<svg") :]


def _beside(axes: Any, x: float, y: float, text: str) -> None:
    label = axes.annotate(text, (x, y), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8)
    # The scale has room for it; else the longest text would decide how wide the plot is.
    label.set_in_layout(False)


def _legend(axes: Any, handles: Sequence[Patch] | None = None) -> None:
    """Above the plot, where it hides nothing."""
    place: Any = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 6, "frameon": False, "borderaxespad": 0.2}
    axes.legend(handles=handles, **place) if handles else axes.legend(**place)


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _time_axis(axes: Any) -> None:
    locator = DATES.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(DATES.ConciseDateFormatter(locator))


def _whole_ms(row: Any) -> int:
    return (row["join_phase_ms"] or 0) + (row["sync_phase_ms"] or 0)


def _what(row: Any) -> str:
    """When, what, whose doing, and what came of it."""
    who = f" ({_name(row['cause_member_id'])})" if row["cause_member_id"] else ""
    members = "" if row["members"] is None else f" → {row['members']} member{'s' if row['members'] != 1 else ''}"
    return f"{_time(row['started_ms']):%m-%d %H:%M:%S}  gen {row['generation']}: {row['cause']}{who}{members}"


def _remark(row: Any) -> str:
    """What is out of the ordinary."""
    outcome = None if row["outcome"] == "completed" else row["outcome"]
    was_long = (row["slowest_ms"] or 0) >= WORTH_A_WORD_MS
    waited_for = f"waited for {row['slowest_client_id']}" if was_long else None
    reason = f"“{_shortened(row['client_reason'])}”" if row["client_reason"] else None
    return ", ".join(remark for remark in (outcome, waited_for, reason) if remark)


def _name(member_id: str) -> str:
    """Without the part that brokers add to the client's own name."""
    return re.sub(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "", member_id)


def _shortened(text: str, length: int = 40) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"

"""The page: one HTML file that needs no other, and every plot as a file beside it."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from ottla.pipeline.report import plots
from ottla.pipeline.report.reading import Findings

GROUPS_MAX = 12
_UNOWNED = ("group_id", "topic", "partition", "moves", "unowned_ms", "longest_ms")
_STUCK = ("group_id", "kind", "owner", "client_id", "topic", "partition", "until", "duration_ms", "lag")

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.2rem }
figure { margin: 2rem 0 } svg { max-width: 100%; height: auto }
table { border-collapse: collapse; font-size: 13px } th, td { text-align: left; padding: .25rem .8rem .25rem 0 }
th { border-bottom: 1px solid #999 } tr:nth-child(even) td { background: #f6f6f6 } td.number { text-align: right }
p.note { color: #666 }
"""


def write_report(findings: Findings, directory: Path) -> Path:
    """Writes `report.html`, one SVG per plot, and `report.svg` with all of them; gives the page's path."""
    directory.mkdir(parents=True, exist_ok=True)
    drawn = dict(_plots(findings))
    for name, svg in {**drawn, "report": plots.stacked(list(drawn.values()))}.items():
        (directory / f"{name}.svg").write_text(svg, encoding="utf-8")
    page = directory / "report.html"
    page.write_text(_page(findings, drawn.values()), encoding="utf-8")
    return page


def _plots(findings: Findings) -> Iterator[tuple[str, str]]:
    """File names and SVGs."""
    by_group: dict[str, list[Any]] = {}
    for row in findings.rebalances:
        by_group.setdefault(row["group_id"], []).append(row)
    busiest = sorted(by_group, key=lambda group: -len(by_group[group]))[:GROUPS_MAX]
    for number, group in enumerate(busiest, start=1):
        yield f"generations-{number}", plots.generations(f"Generations of {group}", by_group[group])
    yield "durations", plots.durations("How long rebalances took", findings.rebalances)
    if findings.slowest:
        yield "slowest", plots.slowest("Whom the others waited for", findings.slowest)
    if any(row["lag"] for row in findings.lag):
        yield "lag", plots.lag("Lag", findings.lag)
    if findings.leadership:
        yield "leadership", plots.leadership("Who led the partitions that moved", findings.leadership)


def _page(findings: Findings, drawn: Iterable[str]) -> str:
    body = [f"<h1>Consumer groups</h1><p class=note>{escape(_summary(findings))}</p>"]
    body += [f"<figure>{svg}</figure>" for svg in drawn]
    if findings.unowned:
        body.append("<h2>Partitions without an owner</h2>" + _table(_UNOWNED, findings.unowned))
    if findings.stuck:
        body.append("<h2>Stuck members</h2>" + _table(_STUCK, findings.stuck))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Consumer groups</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _summary(findings: Findings) -> str:
    rebalances = findings.rebalances
    done = [
        row["duration_ms"] for row in rebalances if row["outcome"] == "completed" and row["duration_ms"] is not None
    ]
    first, last = (_moment(rebalances[place]["started_ms"]) for place in (0, -1))
    groups = len({row["group_id"] for row in rebalances})
    longest = f"; the longest of {len(done):,} completed took {max(done) / 1000:.1f} s" if done else ""
    return f"{len(rebalances):,} rebalances of {groups:,} groups from {first} to {last} UTC{longest}."


def _table(columns: Sequence[str], rows: Sequence[Any]) -> str:
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in columns)
    lines = ("".join(_cell(row[name]) for name in columns) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell(value: object) -> str:
    if value is None:
        return "<td>-</td>"
    if isinstance(value, int):
        return f"<td class=number>{value:,}</td>"
    return f"<td>{escape(str(value))}</td>"


def _moment(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S}"

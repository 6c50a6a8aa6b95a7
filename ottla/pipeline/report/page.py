"""The page: one HTML file that needs no other, with the answer in its first line."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ottla.pipeline.report.answers import Answer, Names, Wait, answers, gaps_of, seconds, waits
from ottla.pipeline.report.pieces import (
    COLORS,
    Bar,
    Cell,
    lag_chart,
    legend,
    moment,
    number,
    shares,
    table,
    timeline,
)
from ottla.pipeline.report.reading import Findings
from ottla.pipeline.report.transactions import transactions_section

GROUPS_MAX = 12
PARTITIONS_MAX = 25
REBALANCES_SHOWN = 40
REASON_MAX = 80
NO_OWNER, NO_LEADER = "no owner", "no leader"
PHASES = {"initial delay": "delay", "joining": "none", "syncing": "syncing"}
_COLUMNS = ("started", "generation", "cause", "member", "took", "", "joining", "waited for", "members", "outcome")
_STUCK = ("group", "problem", "member", "partition", "until", "for", "lag")
_STYLE = Path(__file__).parent / "style.css"


def write_report(findings: Findings, directory: Path) -> Path:
    """Writes `report.html`; gives its path."""
    directory.mkdir(parents=True, exist_ok=True)
    page = directory / "report.html"
    page.write_text(page_of(findings), encoding="utf-8")
    return page


def page_of(findings: Findings) -> str:
    names = Names(findings.ownership)
    body = "".join(_body(findings, names))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Consumer groups</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE.read_text(encoding='utf-8')}</style></head><body><main>{body}</main></body></html>\n"
    )


def _body(findings: Findings, names: Names) -> Iterator[str]:
    found = answers(findings, names)
    yield "<h1>Consumer groups</h1>"
    if found:
        yield from _groups(found, findings, names)
    else:
        yield '<p class="answer">No rebalances</p>'
    yield from transactions_section(findings)
    if findings.leadership:
        yield f"<h2>Who led the partitions that moved</h2>{_leadership(findings.leadership)}"
    if findings.stuck:
        rows = [_stuck_row(row) for row in findings.stuck]
        yield f"<h2>Stuck members</h2>{table('The latest first, times in UTC', _STUCK, rows)}"


def _groups(found: Sequence[Answer], findings: Findings, names: Names) -> Iterator[str]:
    worst, others = found[0], found[1:]
    first_line = f"<strong>{escape(worst.group_id)}</strong>: {escape(worst.text)}"
    yield f'<p class="answer">{first_line}</p>'
    if others:
        listed = (f"<li><strong>{escape(each.group_id)}</strong>: {escape(each.text)}</li>" for each in others)
        yield f"<ul>{''.join(listed)}</ul>"
    yield f'<p class="note">{escape(_extent(findings.rebalances))}</p>'
    for answer in found[:GROUPS_MAX]:
        yield f"<section><h2>{escape(answer.group_id)}</h2>{''.join(_group(answer, findings, names))}</section>"
    waited = waits(findings, names)
    if waited:
        columns = ("group", "member", "rebalances", "waited", "", "at most")
        rows = [_waited_row(each, waited[0].total_ms) for each in waited]
        yield f"<h2>Whom the others waited for</h2>{table('In all rebalances, the longest first', columns, rows)}"


def _extent(rebalances: Sequence[Any]) -> str:
    done = [row["duration_ms"] for row in rebalances if row["outcome"] == "completed"]
    first, last = (moment(rebalances[place]["started_ms"]) for place in (0, -1))
    groups = len({row["group_id"] for row in rebalances})
    longest = f"; the longest of {len(done):,} completed took {seconds(max(done))}" if done else ""
    return f"{_count(len(rebalances), 'rebalance')} of {_count(groups, 'group')} from {first} to {last} UTC{longest}"


def _group(answer: Answer, findings: Findings, names: Names) -> Iterator[str]:
    group_id = answer.group_id
    owned = [row for row in findings.ownership if row["group_id"] == group_id]
    if owned:
        yield f"<h3>Who owned the partitions</h3>{_ownership(owned, names)}"
    rebalances = [row for row in findings.rebalances if row["group_id"] == group_id]
    yield f"<h3>Rebalances</h3>{_rebalances(rebalances, names)}"
    unowned = _time_without_owner(owned)
    if unowned:
        gaps = gaps_of(findings)[group_id]
        longest = seconds(max(until_ms - from_ms for from_ms, until_ms in gaps))
        caption = f"Some partition had no owner {_count(len(gaps), 'time')}, for {longest} at most"
        columns = ("partition", "moved", "without owner", "at most")
        yield f"<h3>Partitions without an owner</h3>{table(caption, columns, unowned)}"
    samples = [(row["at_ms"], row["lag"]) for row in findings.lag if row["group_id"] == group_id]
    if any(lag for _, lag in samples):
        yield f"<h3>Lag</h3>{lag_chart(group_id, samples)}"


def _ownership(owned: Sequence[Any], names: Names) -> str:
    """The partitions that were longest without an owner."""
    by_partition: dict[str, list[Any]] = {}
    for row in owned:
        by_partition.setdefault(_partition(row), []).append(row)
    last_ms = max(row["until_ms"] or row["from_ms"] for row in owned)
    edge_ms = last_ms + max(1000, (last_ms - min(row["from_ms"] for row in owned)) // 20)
    owners = sorted({names.of(row["group_id"], row["member_id"]) for row in owned})
    styles = {name: f"o{place % COLORS}" for place, name in enumerate(owners)}

    def bars_of(rows: Sequence[Any]) -> Iterator[Bar]:
        for row in rows:
            if row["unowned_ms"]:
                yield Bar(NO_OWNER, "none", row["unowned_from_ms"], row["unowned_from_ms"] + row["unowned_ms"])
            name = names.of(row["group_id"], row["member_id"])
            until_ms = edge_ms if row["until_ms"] is None else row["until_ms"]
            yield Bar(name, styles[name], row["from_ms"], until_ms, is_over=row["until_ms"] is not None)

    worst = sorted(by_partition, key=lambda name: -sum(row["unowned_ms"] or 0 for row in by_partition[name]))
    shown = [(name, list(bars_of(by_partition[name]))) for name in by_partition if name in worst[:PARTITIONS_MAX]]
    hidden = len(by_partition) - len(shown)
    more = f'<p class="note">{_count(hidden, "partition")} more, each with less time without an owner.</p>'
    return timeline(shown) + (more if hidden else "")


def _time_without_owner(owned: Sequence[Any]) -> list[tuple[Cell, ...]]:
    found: dict[str, list[int]] = {}
    moves: dict[str, int] = {}
    for row in owned:
        if row["unowned_ms"]:
            found.setdefault(_partition(row), []).append(row["unowned_ms"])
            moves[_partition(row)] = moves.get(_partition(row), 0) + row["moves"]
    longest_first = sorted(found, key=lambda name: -sum(found[name]))[:PARTITIONS_MAX]
    return [
        (
            Cell(name), number(moves[name]), Cell(seconds(sum(found[name])), "number"),
            Cell(seconds(max(found[name])), "number"),
        )
        for name in longest_first
    ]  # fmt: skip


def _rebalances(rows: Sequence[Any], names: Names) -> str:
    shown = rows[-REBALANCES_SHOWN:]
    longest_ms = max((row["join_phase_ms"] or 0) + (row["sync_phase_ms"] or 0) for row in shown)
    earlier = len(rows) - len(shown)
    caption = f"The latest {len(shown)}, times in UTC" if earlier else "Times in UTC"
    phases = {name: style for name, style in PHASES.items() if style != "delay" or any(r["is_initial"] for r in shown)}
    return table(caption, _COLUMNS, [_rebalance_row(row, longest_ms, names) for row in shown]) + legend(phases.items())


def _rebalance_row(row: Any, longest_ms: int, names: Names) -> tuple[Cell, ...]:
    joining = PHASES["initial delay" if row["is_initial"] else "joining"]
    phases = ((joining, row["join_phase_ms"] or 0), (PHASES["syncing"], row["sync_phase_ms"] or 0))
    reason = row["client_reason"] or ""
    cause = f"{row['cause']}: “{reason[:REASON_MAX]}{'…' * (len(reason) > REASON_MAX)}”" if reason else row["cause"]
    member, slowest = row["cause_member_id"], row["slowest_member_id"]
    waited = f"{names.of(row['group_id'], slowest)} {seconds(row['slowest_ms'])}" if row["slowest_ms"] else "–"
    return (
        Cell(moment(row["started_ms"]), "time"),
        number(row["generation"]),
        Cell(cause),
        Cell(names.of(row["group_id"], member) if member else "–"),
        Cell(_seconds(row["duration_ms"]), "number"),
        Cell(shares(phases, longest_ms), is_html=True),
        Cell(_seconds(row["join_phase_ms"]), "number"),
        Cell("initial delay" if row["is_initial"] else waited),
        number(row["members"]),
        Cell(row["outcome"]),
    )


def _leadership(terms: Sequence[Any]) -> str:
    brokers = sorted({row["leader"] for row in terms})
    last_ms = max(row["until_ms"] or row["from_ms"] for row in terms)
    # Who leads still does so to the right edge.
    edge_ms = last_ms + max(1000, (last_ms - min(row["from_ms"] for row in terms)) // 20)
    by_name: dict[str, list[Bar]] = {}
    for row in terms:
        bars = by_name.setdefault(row["name"], [])
        if row["leaderless_ms"]:
            bars.append(Bar(NO_LEADER, "none", row["from_ms"] - row["leaderless_ms"], row["from_ms"]))
        style = f"o{brokers.index(row['leader']) % COLORS}"
        until_ms = edge_ms if row["until_ms"] is None else row["until_ms"]
        is_over = row["until_ms"] is not None
        bars.append(Bar(f"broker {row['leader']}", style, row["from_ms"], until_ms, is_over=is_over))
    return timeline(list(by_name.items()))


def _waited_row(wait: Wait, longest_ms: int) -> tuple[Cell, ...]:
    return (
        Cell(wait.group_id),
        Cell(wait.name),
        number(wait.times),
        Cell(seconds(wait.total_ms), "number"),
        Cell(shares([("none", wait.total_ms)], longest_ms), is_html=True),
        Cell(seconds(wait.longest_ms), "number"),
    )


def _stuck_row(row: Any) -> tuple[Cell, ...]:
    who = row["client_id"] or row["owner"] or "no owner"
    return (
        Cell(row["group_id"]),
        Cell(row["kind"]),
        Cell(who),
        Cell("–" if row["topic"] is None else _partition(row)),
        Cell(f"{row['until']:%Y-%m-%d %H:%M:%S}", "time"),
        Cell(_seconds(row["duration_ms"]), "number"),
        number(row["lag"]),
    )


def _partition(row: Any) -> str:
    return f"{row['topic']}-{row['partition']}"


def _seconds(milliseconds: int | None) -> str:
    return "–" if milliseconds is None else seconds(milliseconds)


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"

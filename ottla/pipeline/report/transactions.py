"""The part of the page about transactions: how many were aborted and why, and how long they kept readers of committed
records waiting."""

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from ottla.pipeline.report.answers import seconds
from ottla.pipeline.report.pieces import Bar, Cell, moment, number, shares, table, timeline
from ottla.pipeline.report.reading import Findings

COMMIT = "commit"
COMMITTED, UNKNOWN_REASON = "committed", "aborted"
STYLES = {
    COMMITTED: "o0",
    "by its producer": "delay",
    "its producer asked for a new epoch": "o3",
    "fenced by another producer": "syncing",
    "timed out": "none",
}
_COLUMNS = ("transactional id", "committed", "aborted", "open on average", "at most", "", "why aborted")
_ABORTS = ("began", "transactional id", "open", "reason", "producer", "topics", "groups")


def transactions_section(findings: Findings) -> Iterator[str]:
    """Nothing where there were none."""
    if not findings.transactions:
        return
    by_id: dict[str, list[Any]] = {}
    for row in findings.transactions:
        by_id.setdefault(row["transactional_id"], []).append(row)
    longest_ms = max(row["longest_ms"] or 0 for row in findings.transactions)
    yield f'<h2>Transactions</h2><p class="answer">{escape(_answer(findings.transactions, longest_ms))}</p>'
    rows = [_row(transactional_id, rows, longest_ms) for transactional_id, rows in by_id.items()]
    yield table("Those with the most aborts first", _COLUMNS, rows)
    if findings.longest_transactions:
        yield f"<h3>The longest of each</h3>{_longest(findings.longest_transactions)}"
    if findings.aborts:
        rows = [_abort_row(row) for row in findings.aborts]
        yield f"<h3>Aborted</h3>{table('The latest first, times in UTC', _ABORTS, rows)}"


def _answer(rows: Sequence[Any], longest_ms: int) -> str:
    total, aborted = sum(row["transactions"] for row in rows), sum(_aborts(rows).values())
    counted = f"{total:,} {'transaction' if total == 1 else 'transactions'}"
    ended = f"{aborted:,} of them aborted" if aborted else "none of them aborted"
    return f"{counted}, {ended}; the longest was open for {seconds(longest_ms)}"


def _aborts(rows: Sequence[Any]) -> Counter[str]:
    """By their reasons."""
    found: Counter[str] = Counter()
    for row in rows:
        if row["outcome"] != COMMIT:
            found[_reason(row)] += row["transactions"]
    return found


def _reason(row: Any) -> str:
    return row["reason"] or UNKNOWN_REASON


def _row(transactional_id: str, rows: Sequence[Any], longest_ms: int) -> tuple[Cell, ...]:
    aborts, total = _aborts(rows), sum(row["transactions"] for row in rows)
    at_most_ms = max(row["longest_ms"] or 0 for row in rows)
    average_ms = sum(row["total_ms"] or 0 for row in rows) // total
    return (
        Cell(transactional_id),
        number(total - aborts.total()),
        number(aborts.total()),
        Cell(seconds(average_ms), "number"),
        Cell(seconds(at_most_ms), "number"),
        Cell(shares([(STYLES[COMMITTED], at_most_ms)], longest_ms), is_html=True),
        Cell(", ".join(f"{reason} ({count:,})" for reason, count in aborts.most_common()) or "–"),
    )


def _longest(rows: Sequence[Any]) -> str:
    by_id: dict[str, list[Bar]] = {}
    for row in rows:
        name = COMMITTED if row["outcome"] == COMMIT else _reason(row)
        bar = Bar(name, STYLES.get(name, "none"), row["started_ms"], row["started_ms"] + row["open_ms"])
        by_id.setdefault(row["transactional_id"], []).append(bar)
    return timeline(list(by_id.items()))


def _abort_row(row: Any) -> tuple[Cell, ...]:
    producer = "–" if row["producer_epoch"] is None else f"{row['producer_id']}, epoch {row['producer_epoch']}"
    return (
        Cell(moment(row["started_ms"]), "time"),
        Cell(row["transactional_id"]),
        Cell("–" if row["open_ms"] is None else seconds(row["open_ms"]), "number"),
        Cell(_reason(row)),
        Cell(producer),
        Cell(", ".join(row["topics"] or ()) or "–"),
        Cell(", ".join(row["groups"] or ()) or "–"),
    )

"""Rows as the report reads them from the tables: three groups, one of which had a bad night."""

from datetime import UTC, datetime
from typing import Any

from ottla.pipeline.report.reading import Findings

START_MS = 1_700_000_000_000
POD_1, POD_2, POD_3 = (f"billing-pod-{number}-{number * 8}-0000-0000-0000-{number * 12}" for number in "123")
OWNERS = (POD_1, POD_2, POD_3)


def rebalance(at_s: float, generation: int, cause: str, **columns: Any) -> dict[str, Any]:
    row = {
        "group_id": "billing", "started_ms": START_MS + round(1000 * at_s), "generation": generation, "cause": cause,
        "cause_member_id": None, "client_reason": None, "outcome": "completed", "members": 3, "join_phase_ms": 40,
        "sync_phase_ms": 20, "duration_ms": 60, "slowest_member_id": None, "slowest_ms": None, "is_initial": False,
    }  # fmt: skip
    return row | columns


def owned(partition: int, owner: str, from_s: float, until_s: float | None, unowned_s: float = 0) -> dict[str, Any]:
    from_ms = START_MS + round(1000 * from_s)
    return {
        "group_id": "billing", "topic": "invoices", "partition": partition, "owner": owner, "member_id": owner,
        "client_id": owner[:13], "from_ms": from_ms, "until_ms": until_s and START_MS + round(1000 * until_s),
        "unowned_from_ms": from_ms - round(1000 * unowned_s) if unowned_s else None,
        "unowned_ms": round(1000 * unowned_s) or None, "moves": 1,
    }  # fmt: skip


def lag(group_id: str, *records: int) -> list[dict[str, Any]]:
    return [{"group_id": group_id, "at_ms": START_MS + 10_000 * place, "lag": one} for place, one in enumerate(records)]


def ended(
    transactional_id: str, outcome: str, reason: str | None, transactions: int, total_ms: int, longest_ms: int
) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id, "outcome": outcome, "reason": reason, "transactions": transactions,
        "total_ms": total_ms, "longest_ms": longest_ms,
    }  # fmt: skip


def transaction(transactional_id: str, at_s: float, open_ms: int, reason: str | None = None) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id, "started_ms": START_MS + round(1000 * at_s), "open_ms": open_ms,
        "outcome": "abort" if reason else "commit", "reason": reason, "producer_id": 7, "producer_epoch": 3,
        "topics": ["invoices", "<exports>"], "groups": ["billing"],
    }  # fmt: skip


def bad_night() -> Findings:
    poll = "member left, max.poll.interval.ms exceeded"
    rebalances = [
        rebalance(0, 1, "member joined", cause_member_id=POD_1, join_phase_ms=3000, duration_ms=3020, is_initial=True),
        rebalance(
            60, 2, "session expired", cause_member_id=POD_3, join_phase_ms=16_000, duration_ms=16_020, members=2,
            slowest_member_id=POD_2, slowest_ms=16_000,
        ),
        rebalance(90, 3, "member joined", cause_member_id=POD_3, join_phase_ms=4000, sync_phase_ms=300,
                  duration_ms=4300, slowest_member_id=POD_1, slowest_ms=4000),
        rebalance(95, 1, "member joined", group_id="audit", cause_member_id="auditor", members=1, is_initial=True),
        rebalance(140, 4, poll, cause_member_id=POD_2, client_reason="consumer poll timeout has expired <now>"),
    ]  # fmt: skip
    ownership = [
        row
        for partition in range(6)
        for row in (
            owned(partition, OWNERS[partition % 3], 3, 60),
            owned(partition, OWNERS[partition % 2], 76, 90, 16),
            owned(partition, OWNERS[partition % 3], 94.3, None, 4.3),
        )
    ]
    stuck = {
        "group_id": "billing", "kind": poll, "owner": POD_2, "client_id": "billing-pod-2", "topic": None,
        "partition": None, "until": datetime.fromtimestamp(START_MS / 1000 + 140, UTC), "duration_ms": None,
        "lag": None,
    }  # fmt: skip
    terms = [
        {"name": "invoices-0", "leader": 1, "from_ms": START_MS, "until_ms": START_MS + 50_000, "leaderless_ms": None},
        {"name": "invoices-0", "leader": 2, "from_ms": START_MS + 58_000, "until_ms": None, "leaderless_ms": 8000},
    ]
    counted = [
        ended("exporter", "abort", "timed out", 2, 122_000, 61_000),
        ended("exporter", "abort", "fenced by another producer", 1, 3000, 3000),
        ended("exporter", "commit", None, 1200, 60_000, 900),
        ended("billing-out", "commit", None, 4000, 40_000, 120),
    ]
    longest = [transaction("exporter", 10, 61_000, "timed out"), transaction("billing-out", 20, 120)]
    lags = [*lag("audit", 3, 1, 0, 2), *lag("billing", 100, 9000, 250_000, 120_000, 40, 0)]
    return Findings(
        rebalances=rebalances, ownership=ownership, lag=lags, stuck=[stuck], leadership=terms, transactions=counted,
        longest_transactions=longest, aborts=longest[:1],
    )  # fmt: skip

"""The observatory's table of transactions, and what the report reads from it, on small frames with known truth."""

from typing import Any

import pytest

from ottla.pipeline.events import events_of, transaction_events_of
from ottla.pipeline.observatory.transactions import transactions
from ottla.pipeline.report.reading import longest_of_each, of_their_groups, transactions_by_id
from tests.pipeline.test_observatory import START_MS, Log, rows_of, when

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
COLUMNS = (
    "transactional_id", "producer_id", "producer_epoch", "started_at", "started_ms", "decided_at", "completed_at",
    "open_ms", "markers_ms", "outcome", "reason", "partitions", "topics", "groups", "transaction_timeout_ms",
)  # fmt: skip
TX: dict[str, Any] = {"transactional_id": "tx", "producer_id": 7, "producer_epoch": 3}


class TransactionEvents(Log):
    def __init__(self, spark: Any) -> None:
        super().__init__(spark, group=None)

    def began(self, at_ms: int, **fields: Any) -> None:
        more = {**TX, "start_ms": START_MS + at_ms, "transaction_timeout_ms": 60_000, **fields}
        self.add(at_ms, "transaction_began", **more)

    def decided(self, at_ms: int, start_ms: int, outcome: str = "commit", **fields: Any) -> None:
        more = {"outcome": outcome, "open_ms": at_ms - start_ms, "partition_count": 3, "topics": ["t"], "group_ids": []}
        self.add(at_ms, "transaction_decided", **{**TX, "start_ms": START_MS + start_ms, **more, **fields})

    def ended(self, at_ms: int, start_ms: int, outcome: str = "commit", **fields: Any) -> None:
        more = {**TX, "start_ms": START_MS + start_ms, "outcome": outcome, **fields}
        self.add(at_ms, "transaction_completed", **more)

    def table(self) -> Any:
        return transactions(transaction_events_of(self.frame()))


def test_a_transaction_is_one_row_from_begin_to_markers(spark: Any) -> None:
    log = TransactionEvents(spark)
    log.began(0)
    log.decided(400, 0, "abort", reason="timed out", group_ids=["g"])
    log.events.append(log.events[-1])
    log.ended(450, 0, "abort", producer_epoch=4)
    log.began(500)

    (row,) = log.table().collect()

    assert tuple(row.asDict()) == COLUMNS
    assert row.asDict() == {
        "transactional_id": "tx", "producer_id": 7, "producer_epoch": 3, "started_at": when(0), "started_ms": START_MS,
        "decided_at": when(400), "completed_at": when(450), "open_ms": 400, "markers_ms": 50, "outcome": "abort",
        "reason": "timed out", "partitions": 3, "topics": ["t"], "groups": ["g"], "transaction_timeout_ms": 60_000,
    }  # fmt: skip


def test_of_a_decision_without_an_event_the_outcome_is_known(spark: Any) -> None:
    log = TransactionEvents(spark)
    log.began(0)
    log.ended(90, 0)
    log.ended(990, 900, "abort", transactional_id="other")
    log.decided(1200, 1000)

    columns = ("transactional_id", "producer_epoch", "open_ms", "markers_ms", "outcome")
    assert rows_of(log.table(), *columns, order="started_ms") == [
        ("tx", 3, None, None, "commit"),
        ("other", None, None, None, "abort"),
        ("tx", 3, 200, None, "commit"),
    ]


def test_events_of_groups_and_transactions_are_apart(spark: Any) -> None:
    log = TransactionEvents(spark)
    log.began(0)
    log.add(5, "member_joined", group_id="g", client_reason='"transactional_id":')
    log.add(9, "hanging_transaction", topic="t", partition=0, producer_id=7)

    assert [row.type for row in transaction_events_of(log.frame()).collect()] == ["transaction_began"]
    others = sorted(row.type for row in events_of(log.frame()).collect())
    assert others == ["hanging_transaction", "member_joined"]


def test_report_counts_by_reason_and_has_the_longest(spark: Any) -> None:
    log = TransactionEvents(spark)
    for number in range(30):
        log.decided(100 * number + number, 100 * number, group_ids=["g"] if number % 2 else [])
    log.decided(9000, 5000, "abort", reason="timed out", transactional_id="bad")
    table = log.table().cache()

    counted = [tuple(row)[:6] for row in transactions_by_id(table).collect()]
    assert counted == [("bad", "abort", "timed out", 1, 4000, 4000), ("tx", "commit", None, 30, 435, 29)]
    longest = longest_of_each(table, ["tx"]).collect()
    assert [row.open_ms for row in longest] == list(range(10, 30))
    assert of_their_groups(table, ["g"]).count() == 15
    assert of_their_groups(table, None).count() == 31
    spark.catalog.clearCache()

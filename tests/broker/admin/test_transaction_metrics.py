"""Metrics of transactions: ids by state, loading, verification, late transactions and remembered producers."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.broker.admin.metrics.transaction_source import TransactionSource
from ottla.broker.broker import Broker
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import ProduceResponse
from ottla.storage.transactions import LATE_AFTER_TIMEOUT_MS
from tests.broker.admin.test_metrics import observed, scraped, value
from tests.broker.test_transaction_handlers import began, described_as
from tests.broker.test_transactional_produce import in_transaction
from tests.broker.wire import client_of, running_broker

TOO_LONG_MS = 900_000 + LATE_AFTER_TIMEOUT_MS
BEFORE, AFTER = TOO_LONG_MS - 60_000, TOO_LONG_MS + 1


async def test_transaction_is_seen_from_its_first_question_to_its_end(tmp_path: Path) -> None:
    async with observed(tmp_path, transaction_state_log_num_partitions=1) as broker:
        producer = await began(broker)
        pair = {"producer": producer.producer_id, "epoch": producer.producer_epoch}
        async with client_of(broker) as client:
            await client.call(in_transaction(0, **pair), ProduceResponse, 12)
            await client.call(in_transaction(0, **pair | {"epoch": 9}), ProduceResponse, 12)
        open_ = await scraped(broker.admin_url)
        assert await producer.end(commit=True, version=5) is ErrorCode.NONE
        await described_as(producer, "CompleteCommit")
        over = await scraped(broker.admin_url)

    assert value(open_, "transactional_ids", state="Ongoing") == 1
    assert (value(open_, "transaction_oldest_seconds", state="Ongoing") or -1) >= 0
    assert value(open_, "transaction_load_seconds_count") == 1
    assert value(open_, "transaction_verification_seconds_count") == 2
    assert value(open_, "transaction_verification_failures_total", error="PRODUCER_FENCED") == 1
    assert value(open_, "partitions_with_late_transactions") == 0
    assert value(open_, "producer_ids") == 1
    assert value(over, "transactional_ids", state="CompleteCommit") == 1
    assert value(over, "transactional_ids", state="Ongoing") is None
    assert value(over, "transaction_oldest_seconds", state="Ongoing") is None
    assert value(over, "transaction_markers_retried") == 0


def late_partitions(broker: Broker, later_ms: int) -> Any:
    """As a scrape so much later would find them."""
    clock = SimpleNamespace(wall_ms=lambda: broker.runtime.clock.wall_ms() + later_ms)
    runtime: Any = SimpleNamespace(broker_clock=clock, config=broker.runtime.config)
    parts = broker.parts
    source = TransactionSource(runtime, parts.replicas, parts.transaction_loader, parts.transaction_verification)
    assert list(source.prepare())
    ((_, count),) = source.late_partitions()
    return count


async def test_transaction_without_an_end_is_late_in_each_partition(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        producer = await began(broker)
        async with client_of(broker) as client:
            request = in_transaction(0, 0, producer=producer.producer_id, epoch=producer.producer_epoch)
            await client.call(request, ProduceResponse, 12)

        assert [late_partitions(broker, later_ms) for later_ms in (BEFORE, AFTER)] == [0, 2]
        await producer.end(commit=False, version=5)
        await described_as(producer, "CompleteAbort")
        assert late_partitions(broker, AFTER) == 0

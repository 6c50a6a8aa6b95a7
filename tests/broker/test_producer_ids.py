"""Producer ids, and what the log says of those who ask for transactions."""

from types import SimpleNamespace
from typing import Any

from ottla.broker.metadata.producer_ids import REFUSALS_LOGGED_EVERY_MS, ProducerIds
from tests.broker.wire import RecordingLog


def test_refused_transactions_are_logged_once_a_minute() -> None:
    now_ms = 1
    log = RecordingLog()
    runtime: Any = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: now_ms), log=log)
    metadata: Any = None
    producer_ids = ProducerIds(runtime, metadata)

    for _ in range(5):
        producer_ids.transaction_refused("a")
    now_ms += REFUSALS_LOGGED_EVERY_MS
    producer_ids.transaction_refused("b")

    assert [fields for _, fields in log.events] == [
        {"transactional_id": "a", "requests": 1},
        {"transactional_id": "b", "requests": 5},
    ]

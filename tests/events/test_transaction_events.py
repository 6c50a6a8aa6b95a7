"""Events about transactions, from the requests of a producer to the records in `ottla.events`."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.events.samples import HangingTransactions
from ottla.broker.events.schema import TYPES, key_of
from ottla.coordinator.transactions.facts import TransactionalFact
from ottla.protocol.errors import ErrorCode
from ottla.storage.transactions import LATE_AFTER_TIMEOUT_MS, OldestTransaction
from tests.broker.clusters import until as until_true
from tests.broker.transaction_requests import TransactionalProducer
from tests.broker.transactions import mark, marker, written
from tests.broker.wire import client_of, create_topic, running_broker
from tests.events.test_publisher import EVENTS, events_of

NONE = ErrorCode.NONE
SETTINGS: dict[str, Any] = {name.replace(".", "_"): value for name, value in EVENTS.items()}
MAX_TIMEOUT_MS = 900_000


def published(broker: Broker, of: str = "transaction") -> list[dict[str, Any]]:
    found: Any = SimpleNamespace(broker=broker)
    return [event for event in events_of(found) if event["type"].startswith(of)]


async def types_of(broker: Broker, count: int) -> Sequence[dict[str, Any]]:
    """The events about transactions, when there are so many."""
    await until_true(lambda: len(published(broker)) >= count)
    return published(broker)


async def test_transaction_is_published_from_its_begin_to_its_end(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SETTINGS) as broker:
        async with client_of(broker) as client:
            await create_topic(client, "t", partitions=3)
        producer = TransactionalProducer({0: broker})
        assert await producer.initialize() is NONE
        for commit in (True, False):
            assert await producer.add("t", [0, 2]) == [NONE, NONE]
            assert await producer.add_offsets("g") is NONE
            assert await producer.end(commit=commit) is NONE
            await until_true(lambda ends=1 + (not commit): len(published(broker, "transaction_completed")) == ends)
        events = await types_of(broker, 6)

    story = ["transaction_began", "transaction_decided", "transaction_completed"]
    assert [event["type"] for event in events] == story * 2
    assert {event["transactional_id"] for event in events} == {"tx"}
    committed, aborted = (event for event in events if event["type"] == "transaction_decided")
    assert (committed["outcome"], committed["partition_count"], committed["group_ids"]) == ("commit", 3, ["g"])
    assert "reason" not in committed
    assert (aborted["outcome"], aborted["reason"]) == ("abort", "by its producer")
    assert len({event["start_ms"] for event in events}) == 2


async def test_marker_of_an_operator_is_published_and_logged(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SETTINGS) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        written(broker, "t", "a", producer=7)
        assert await mark(client, marker("t", producer=7, commit=False)) == [(7, "t", 0, NONE)]
        (event,) = await types_of(broker, 1)
        log: Any = broker.runtime.log

    assert (event["type"], event["topic"], event["partition"], event["producer_id"], event["outcome"]) == (
        "transaction_ended_by_operator", "t", 0, 7, "abort",
    )  # fmt: skip
    assert [name for name, _ in log.events].count("TransactionEndedByOperator") == 1


async def test_markers_of_a_broker_are_not_those_of_an_operator(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SETTINGS) as broker:
        async with client_of(broker) as client:
            await create_topic(client, "t")
        producer = TransactionalProducer({0: broker})
        await producer.initialize()
        await producer.add("t", [0])
        await producer.end(commit=False)
        await until_true(lambda: bool(published(broker, "transaction_completed")))
        assert published(broker, "transaction_ended_by_operator") == []


def led(oldest: OldestTransaction | None, *, is_leader: bool = True) -> Any:
    return SimpleNamespace(topic="t", index=1, is_leader=is_leader, log=SimpleNamespace(oldest_transaction=oldest))


def test_hanging_transaction_is_reported_once() -> None:
    hanging, oldest = HangingTransactions(MAX_TIMEOUT_MS), OldestTransaction(7, 3, 42, seen_ms=1000)
    late_ms = 1000 + MAX_TIMEOUT_MS + LATE_AFTER_TIMEOUT_MS

    assert hanging.sample([led(oldest), led(None)], late_ms) == []
    assert hanging.sample([led(oldest, is_leader=False)], late_ms + 1) == []
    (fact,) = hanging.sample([led(oldest)], late_ms + 1)
    assert hanging.sample([led(oldest)], late_ms + 2) == []

    assert (fact.topic, fact.partition, fact.producer_id, fact.producer_epoch) == ("t", 1, 7, 3)
    assert (fact.first_offset, fact.silent_ms) == (42, MAX_TIMEOUT_MS + LATE_AFTER_TIMEOUT_MS + 1)
    assert (key_of(fact, 1), fact.level) == ("t-1", "warning")
    (again,) = hanging.sample([led(oldest._replace(first_offset=50))], late_ms + 3)
    assert again.first_offset == 50


async def test_log_names_its_oldest_open_transaction(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        log = broker.replicas.partition("t", 0).log
        assert log.oldest_transaction is None
        for producer in (8, 7):
            written(broker, "t", "a", producer=producer, epoch=2)
        oldest = log.oldest_transaction
        assert oldest is not None
        assert oldest[:3] == (8, 2, 0)
        await mark(client, marker("t", producer=8, commit=True, epoch=2))
        assert log.oldest_transaction is not None
        assert log.oldest_transaction.producer_id == 7
        await mark(client, marker("t", producer=7, commit=True, epoch=2))
        assert log.oldest_transaction is None


def test_every_fact_of_a_transactional_id_has_it_as_its_key() -> None:
    kinds = [kind for kind in TYPES if issubclass(kind, TransactionalFact)]
    assert len(kinds) >= 7
    assert {kind.key for kind in kinds} == {TransactionalFact.key}

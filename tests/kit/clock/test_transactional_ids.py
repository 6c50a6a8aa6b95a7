"""Transactional ids that no client uses for longer than `transactional.id.expiration.ms`, in broker time."""

from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from kafka.admin import KafkaAdminClient

from ottla.testing.handle import Kafka

WAIT_S = 20


def producer_id(kafka: Kafka) -> int | None:
    """None once the id is gone."""
    asker = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    try:
        listed = [each for of_broker in asker.list_transactions().values() for each in of_broker]
    finally:
        asker.close()
    return next((each.producer_id for each in listed if each.transactional_id == "till"), None)


def ended(till: Producer, value: bytes) -> None:
    till.begin_transaction()
    till.produce("orders", value)
    till.commit_transaction(WAIT_S)


def test_tx19_id_that_has_expired_goes_on_with_another_producer(handle: Kafka) -> None:
    """Its client hears INVALID_PRODUCER_ID_MAPPING once, aborts, and begins again."""
    handle.create_topic("orders", partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
    config: dict[str, Any] = {"transactional.id": "till", "log_level": 0}
    till = Producer(handle.client_config("producer") | config)
    till.init_transactions(WAIT_S)
    ended(till, b"before")
    before = producer_id(handle)

    handle.clock.advance("8d")
    assert producer_id(handle) is None
    till.begin_transaction()
    till.produce("orders", b"lost")
    with pytest.raises(KafkaException) as refused:
        till.commit_transaction(WAIT_S)
    assert refused.value.args[0].txn_requires_abort()
    till.abort_transaction(WAIT_S)
    ended(till, b"after")

    assert producer_id(handle) not in (before, None)
    assert [record.value for record in handle.records("orders")] == [b"after"]

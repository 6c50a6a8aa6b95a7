"""Transactions of a real client whose requests are late, or whose answers are lost."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from ottla import BrokerThread
from ottla.testing.faults.actions import Disconnect, Drop, Error, Hold
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.clients.test_confluent_kafka import WAIT_S, consumer, create_topic, producer
from tests.clients.test_librdkafka_transactions import described, values

SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 50}
QUICK = {"socket_timeout_ms": 1000, "retry_backoff_ms": 10, "reconnect_backoff_max_ms": 100}


@pytest.fixture
def broker() -> Iterator[Any]:
    with BrokerThread(settings=SETTINGS) as broker:
        create_topic(broker, "t", partitions=2)  # type: ignore[arg-type]
        yield broker


def transactional(broker: Any, **settings: object) -> Producer:
    sender = producer(broker, transactional_id="tx", **QUICK, **settings)
    sender.init_transactions(WAIT_S)
    return sender


def send(sender: Producer, value: str, partition: int = 0) -> None:
    sender.produce("t", value, partition=partition)
    assert sender.flush(WAIT_S) == 0


def ends(broker: Any, partition: int) -> list[int]:
    """Where readers of both levels may read to."""
    found = []
    for level in ("read_committed", "read_uncommitted"):
        reader = consumer(broker, "ends", isolation_level=level)
        found.append(reader.get_watermark_offsets(TopicPartition("t", partition), WAIT_S)[1])
        reader.close()
    return found


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("lost", [Drop("response"), Disconnect("after")], ids=["never", "cut off"])
def test_tx24_answer_to_the_end_that_is_lost_comes_again(broker: Any, lost: Any, commits: bool) -> None:
    """The client repeats its EndTxn, and goes on with the same producer id and epoch."""
    sender = transactional(broker)
    before = described(broker)
    sender.begin_transaction()
    send(sender, "first")
    with broker.faults.fault(api="EndTxn", do=lost, times=2) as rule:
        (sender.commit_transaction if commits else sender.abort_transaction)(WAIT_S)
    assert rule.hits == 2

    sender.begin_transaction()
    send(sender, "second")
    sender.commit_transaction(WAIT_S)

    assert values(broker, "t") == ([b"first", b"second"] if commits else [b"second"])
    after = described(broker)
    assert (after.producer_id, after.producer_epoch) == (before.producer_id, before.producer_epoch)


def test_tx25_answer_with_an_epoch_that_is_lost_comes_again(broker: Any) -> None:
    """A client that the partition has forgotten asks for another epoch with its pair. It is not fenced by itself."""
    sender = transactional(broker)
    before = described(broker)
    sender.begin_transaction()
    send(sender, "first")
    with broker.faults.fault(api="Produce", do=Error("UNKNOWN_PRODUCER_ID")):
        sender.produce("t", "gap", partition=0)
        sender.flush(WAIT_S)
    with broker.faults.fault(api="InitProducerId", do=Disconnect("after"), times=4) as lost:
        sender.abort_transaction(WAIT_S)
    assert lost.hits == 4

    sender.begin_transaction()
    send(sender, "second")
    sender.commit_transaction(WAIT_S)

    assert values(broker, "t") == [b"second"]
    after = described(broker)
    assert (after.producer_id, after.producer_epoch) == (before.producer_id, before.producer_epoch + 1)


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    """A broker whose time is moved: however busy the machine is, no timeout passes before its turn."""
    bed = Testbed(deadline=WAIT_S)
    bed.start()
    yield Kafka(bed)
    bed.stop()


@pytest.mark.parametrize("partition", [0, 1], ids=["of the transaction", "not yet of it"])
def test_tx23_records_that_come_after_the_abort_are_refused(kafka: Any, partition: int) -> None:
    """Their transaction has timed out while they were on their way; they open none that no marker ends."""
    kafka.create_topic("t", partitions=2)
    sender = producer(kafka, transactional_id="tx", transaction_timeout_ms=60_000, message_timeout_ms=60_000)
    sender.init_transactions(WAIT_S)
    sender.begin_transaction()
    send(sender, "in time", 0)
    with kafka.faults.fault(api="Produce", do=Hold()) as held:
        sender.produce("t", "late", partition=partition)
        held.wait(hits=1, within=WAIT_S)
        kafka.clock.advance("2m")
        assert described(kafka).state.name == "COMPLETE_ABORT"
        ended = ends(kafka, partition)
        held.release()
        with pytest.raises(KafkaException) as fenced:
            sender.commit_transaction(WAIT_S)

    assert fenced.value.args[0].code() == KafkaError._FENCED
    assert ends(kafka, partition) == ended
    assert ended[0] == ended[1]
    assert values(kafka, "t", partition) == []

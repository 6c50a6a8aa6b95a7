"""TX08: a producer pauses until its transaction has timed out, and goes on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import ProducerFenced
from confluent_kafka import KafkaError, KafkaException
from kafka import KafkaProducer
from kafka.errors import InvalidProducerEpochError

from tests.clients.go_programs import built
from tests.clients.stepped import GO, SteppedClient, go_client, java_client
from tests.clients.test_confluent_kafka import WAIT_S, create_topic
from tests.clients.test_librdkafka_transactions import described, transactional, values
from tests.served import ServedBroker
from tests.waiting import wait_for

SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
TIMEOUT_MS = 1000

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[ServedBroker]:
    """A broker that looks for transactions to abort all the time."""
    with ServedBroker(tmp_path / "data", SETTINGS) as broker:
        create_topic(broker, "t")
        yield broker


def wait_until_timed_out(broker: ServedBroker) -> None:
    wait_for(lambda: described(broker).state.name == "COMPLETE_ABORT", WAIT_S, "the transaction does not time out")


@pytest.fixture
def client(impatient: ServedBroker, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SteppedClient]:
    """With KIP-890; skips where there is no Java, or no Go."""
    if request.param == "java":
        stepped = java_client(impatient.bootstrap, "t", "tx", TIMEOUT_MS)
    else:
        stepped = go_client(built(GO, tmp_path), impatient.bootstrap, "t", "tx", TIMEOUT_MS)
    with stepped:
        yield stepped


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        pytest.param("java", "InvalidProducerEpochException", marks=pytest.mark.java),
        ("franz-go", "INVALID_PRODUCER_EPOCH"),
    ],
    indirect=["client"],
)
def test_tx08_client_of_kip_890_aborts_and_goes_on(impatient: ServedBroker, client: SteppedClient, reason: str) -> None:
    client.write("early")
    before = described(impatient)
    wait_until_timed_out(impatient)

    assert client.refusal("late") == reason
    client.end(commit=False)
    client.write("next")
    client.end(commit=True)

    after = described(impatient)
    assert (after.producer_id, after.producer_epoch > before.producer_epoch + 1) == (before.producer_id, True)
    assert client.read(1) == values(impatient, "t") == [b"next"]
    assert values(impatient, "t", level="read_uncommitted") == [b"early", b"next"]


def test_tx08_librdkafka_is_fenced(impatient: ServedBroker) -> None:
    sender = transactional(impatient, "tx", transaction_timeout_ms=TIMEOUT_MS, message_timeout_ms=TIMEOUT_MS)
    sender.begin_transaction()
    sender.produce("t", "early")
    assert sender.flush(WAIT_S) == 0
    wait_until_timed_out(impatient)

    sender.produce("t", "late")
    with pytest.raises(KafkaException) as refused:
        sender.commit_transaction(WAIT_S)

    error = refused.value.args[0]
    assert (error.code(), error.fatal()) == (KafkaError._FENCED, True)
    with pytest.raises(KafkaException):
        sender.abort_transaction(WAIT_S)
    goes_on_as_another(impatient)


async def test_tx08_aiokafka_is_fenced(impatient: ServedBroker) -> None:
    sender = AIOKafkaProducer(
        bootstrap_servers=impatient.bootstrap, transactional_id="tx", transaction_timeout_ms=TIMEOUT_MS
    )
    await sender.start()
    await sender.begin_transaction()
    await sender.send_and_wait("t", b"early")
    wait_until_timed_out(impatient)

    with pytest.raises(ProducerFenced):
        await sender.send_and_wait("t", b"late")
    with pytest.raises(ProducerFenced):
        await sender.commit_transaction()
    await sender.stop()
    goes_on_as_another(impatient)


def test_tx08_kafka_python_writes_no_more(impatient: ServedBroker) -> None:
    sender: Any = KafkaProducer(
        bootstrap_servers=impatient.bootstrap, transactional_id="tx", transaction_timeout_ms=TIMEOUT_MS
    )
    sender.init_transactions()
    sender.begin_transaction()
    sender.send("t", b"early").get(WAIT_S)
    wait_until_timed_out(impatient)

    with pytest.raises(InvalidProducerEpochError):
        sender.send("t", b"late").get(WAIT_S)
    sender.close(0)
    goes_on_as_another(impatient)


def goes_on_as_another(broker: ServedBroker) -> None:
    """The application starts its producer again; nothing of the transaction that timed out is seen."""
    sender = transactional(broker, "tx")
    sender.begin_transaction()
    sender.produce("t", "next")
    sender.commit_transaction(WAIT_S)

    assert values(broker, "t") == [b"next"]
    assert values(broker, "t", level="read_uncommitted") == [b"early", b"next"]

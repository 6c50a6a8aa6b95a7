"""Transactions of a real client over what time and administrators do: topics go, logs are compacted, epochs used up."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla import BrokerThread
from ottla.protocol.records.batch import iterate_batches
from ottla.protocol.records.control import marker_of
from tests.clients.test_confluent_kafka import WAIT_S, consumer, create_topic
from tests.clients.test_librdkafka_transactions import TO_THE_END, described, transactional, values
from tests.served import ServedBroker
from tests.simulation.cluster.small_epochs import SMALL_EPOCH_MAX, small_epochs
from tests.waiting import wait_for

KEYS = 5


def ended(sender: Producer, key: str, value: str, *, commits: bool) -> None:
    """A transaction of one record."""
    sender.begin_transaction()
    sender.produce("t", value, key)
    assert sender.flush(WAIT_S) == 0
    (sender.commit_transaction if commits else sender.abort_transaction)(WAIT_S)


def test_tx18_transaction_ends_without_a_topic_that_was_deleted(broker: ServedBroker) -> None:
    for name in ("t", "gone"):
        create_topic(broker, name)
    sender = transactional(broker, "tx")
    sender.begin_transaction()
    for name in ("t", "gone"):
        sender.produce(name, "a", partition=0)
    assert sender.flush(WAIT_S) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["gone"])["gone"].result(WAIT_S)

    sender.commit_transaction(WAIT_S)

    wait_for(lambda: described(broker).state.name == "COMPLETE_COMMIT", WAIT_S, "the transaction does not end")
    assert values(broker, "t") == [b"a"]
    ended(sender, "k", "b", commits=True)
    assert values(broker, "t") == [b"a", b"b"]


@pytest.fixture
def worn() -> Iterator[Any]:
    """A broker whose producer epochs are used up soon."""
    with small_epochs(are_drawn=True), BrokerThread() as broker:
        create_topic(broker, "t")  # type: ignore[arg-type]
        yield broker


def test_tx20_producer_whose_epochs_are_used_up_gets_another_id(worn: Any) -> None:
    """Of clients before KIP-890, with InitProducerId."""
    pairs, senders = [], []
    for number in range(SMALL_EPOCH_MAX + 2):
        senders.append(transactional(worn, "tx"))
        ended(senders[-1], "k", str(number), commits=True)
        after = described(worn)
        pairs.append((after.producer_id, after.producer_epoch))

    first = pairs[0][0]
    assert [pair for pair in pairs if pair[0] == first] == [(first, epoch) for epoch in range(SMALL_EPOCH_MAX)]
    assert [epoch for producer_id, epoch in pairs if producer_id != first] == [0, 1]
    assert values(worn, "t") == [str(number).encode() for number in range(len(pairs))]


def test_tx26_a_thousand_transactions_follow_each_other_at_once(broker: ServedBroker) -> None:
    create_topic(broker, "t")
    sender = transactional(broker, "tx", linger_ms=0)
    for number in range(1000):
        sender.begin_transaction()
        sender.produce("t", str(number), partition=0)
        sender.commit_transaction(WAIT_S)

    assert values(broker, "t") == [str(number).encode() for number in range(1000)]


COMPACTING = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.delete.retention.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
}


@pytest.mark.parametrize("ends", ["restart", "kill"])
def test_tx27_compaction_keeps_what_was_committed_last(tmp_path: Path, ends: str) -> None:
    with ServedBroker(tmp_path / "data", COMPACTING, listen="127.0.0.1:0") as broker:
        create_topic(broker, "t", cleanup_policy="compact", segment_bytes="2000")
        broker.listen = broker.bootstrap
        expected: dict[bytes, bytes] = {}
        for turn in range(3):
            write_over(broker, turn, expected)
            if ends == "kill":
                broker.kill()
                broker.start()
            else:
                broker.restart()
        # What fills the last segment; only those before it are cleaned.
        write_over(broker, 3, expected)
        sender = transactional(broker, "tx")

        def has_shrunk() -> bool:
            # A marker goes in the pass after the one that has found it alone, and a pass comes with something new.
            ended(sender, "k0", "last", commits=True)
            expected[b"k0"] = b"last"
            return markers_in(broker.data_dir) < 4 * TRANSACTIONS // 2

        wait_for(has_shrunk, WAIT_S, lambda: "the log stays long")
        assert last_values(broker) == expected


TRANSACTIONS = 40


def write_over(broker: ServedBroker, turn: int, expected: dict[bytes, bytes]) -> None:
    """Every third transaction is aborted, and never seen."""
    sender = transactional(broker, "tx")
    for number in range(TRANSACTIONS):
        key, value, commits = f"k{number % KEYS}", f"{turn}/{number}", number % 3 != 1
        ended(sender, key, value, commits=commits)
        if commits:
            expected[key.encode()] = value.encode()


def markers_in(data_dir: Path) -> int:
    """In the log as it lies on the disk; a pass of the cleaner may be in between."""
    found = 0
    for path in data_dir.glob("t-0/*.log"):
        try:
            data = memoryview(path.read_bytes())
        except FileNotFoundError:
            continue
        for position, header in iterate_batches(data):
            found += header.is_control and marker_of(data[position : position + header.size_bytes]) is not None
    return found


def last_values(broker: ServedBroker) -> dict[bytes, bytes]:
    reader: Consumer = consumer(broker, "readers", isolation_level="read_committed", **TO_THE_END)
    reader.assign([TopicPartition("t", 0, 0)])
    found: dict[bytes, bytes] = {}
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        message: Any = reader.poll(WAIT_S)
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            reader.close()
            return found
        found[message.key()] = message.value()
    raise AssertionError(f"no end came after {found}")

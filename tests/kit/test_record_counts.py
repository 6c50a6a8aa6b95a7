"""Waits count records as `records` shows them: markers, aborted transactions and what was compacted away are none."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.testing import DeadlineExceeded, log_records
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.kit.members import polled

SOON = 0.05


@pytest.fixture(scope="module")
def shared_bed() -> Iterator[Testbed]:
    """Producers of former tests do not make its topic again."""
    bed = Testbed(deadline=20, settings={"auto.create.topics.enable": False})
    bed.start()
    yield bed
    bed.stop()


@pytest.fixture
def producer(handle: Kafka) -> Producer:
    made = Producer(handle.client_config("producer") | {"transactional.id": "x", "log_level": 0})
    made.init_transactions(20)
    return made


def transaction(producer: Producer, *values: bytes, is_aborted: bool = False) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce("t", value, partition=0)
    assert producer.flush(20) == 0
    (producer.abort_transaction if is_aborted else producer.commit_transaction)(20)


def missing(wait: Any, *arguments: Any, **named: Any) -> list[str]:
    with pytest.raises(DeadlineExceeded) as raised:
        wait(*arguments, **named, within=SOON)
    return list(raised.value.missing)


def assigned(handle: Kafka, isolation: str = "read_committed", offset: int = 0) -> Consumer:
    config = {"group.id": "g", "isolation.level": isolation, "log_level": 0}
    made = Consumer(handle.client_config("consumer") | config)
    made.assign([TopicPartition("t", 0, offset)])
    return made


def test_markers_and_aborted_records_are_not_counted(handle: Kafka, producer: Producer) -> None:
    handle.create_topic("t", 1)
    transaction(producer, b"a")
    assert missing(handle.wait_for_records, "t", 2) == ["1 record of 2"]
    transaction(producer, b"b", b"c", is_aborted=True)
    assert missing(handle.wait_for_records, "t", 2) == ["1 record of 2"]

    producer.begin_transaction()
    producer.produce("t", b"d", partition=0)
    assert producer.flush(20) == 0
    assert missing(handle.wait_for_records, "t", 2) == ["1 record of 2"], "it may still be aborted"
    producer.commit_transaction(20)

    handle.wait_for_records("t", 2)
    assert [each.value for each in handle.records("t")] == [b"a", b"d"]


def test_records_of_one_transaction_come_at_its_commit(handle: Kafka, producer: Producer) -> None:
    """The wait is woken by the marker, which raises the last stable offset."""
    handle.create_topic("t", 1)
    transaction(producer, b"a", b"b")
    for count in range(3, 10):
        transaction(producer, b"c")
        handle.wait_for_records("t", count)
        assert missing(handle.wait_for_records, "t", count + 1) == [f"1 record of {count + 1}"]


def test_compacted_and_deleted_records_are_not_counted(handle: Kafka) -> None:
    topic = handle.create_topic("t", 1, configs={"cleanup.policy": "compact"})
    handle.produce("t", [(b"k", b"%d" % number) for number in range(5)])
    handle.produce("t", [(b"other", b"x")])
    handle.wait_for_records("t", 6)
    topic.roll()
    topic.compact()
    assert len(handle.records("t")) == 2
    assert missing(handle.wait_for_records, "t", 3) == ["1 record of 3"]

    handle.produce("t", [(b"y", b""), (b"z", b"")])
    handle.wait_for_records("t", 4)
    topic.delete_records(0, before=7)

    assert [each.offset for each in handle.records("t")] == [7], "the log begins within a batch"
    assert missing(handle.wait_for_records, "t", 2) == ["1 record of 2"]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_only_records_count_as_consumed(handle: Kafka, producer: Producer, isolation: str) -> None:
    handle.create_topic("t", 1)
    transaction(producer, b"a", is_aborted=True)
    transaction(producer, b"b")
    made = assigned(handle, isolation)
    polled(made, 1 if isolation == "read_committed" else 2)

    handle.wait_until_consumed("t", count=1)
    assert missing(handle.wait_until_consumed, "t", count=2)[-1] == "1 record of 2 to deliver"

    handle.produce("t", [b"c"])
    polled(made, 1)
    handle.wait_until_consumed("t", count=2)
    made.close()


def test_what_no_consumer_sees_need_not_be_consumed(handle: Kafka, producer: Producer) -> None:
    """The end is that of the records: an aborted transaction, or an open one, may follow."""
    handle.create_topic("t", 1)
    handle.wait_until_consumed("t")
    transaction(producer, b"a", is_aborted=True)
    handle.wait_until_consumed("t")
    producer.begin_transaction()
    producer.produce("t", b"b")
    assert producer.flush(20) == 0
    handle.wait_until_consumed("t")
    producer.commit_transaction(20)

    assert missing(handle.wait_until_consumed, "t") == ["t-0: delivered up to 0, end 4"]


def test_records_before_the_first_delivered_are_not_consumed(handle: Kafka) -> None:
    handle.create_topic("t", 1)
    for value in (b"a", b"b", b"c"):
        handle.produce("t", [value])
    made = assigned(handle, offset=2)
    polled(made, 1)

    assert missing(handle.wait_until_consumed, "t", count=2)[-1] == "1 record of 2 to deliver"
    made.close()


def test_a_look_reads_what_came_since_the_last(monkeypatch: pytest.MonkeyPatch, handle: Kafka, bed: Testbed) -> None:
    handle.create_topic("t", 1)
    for _ in range(50):
        handle.produce("t", [b"x" * 1000])
    handle.wait_for_records("t", 50)
    batches: list[int] = []
    iterate = log_records.iterate_batches

    def counted(buffer: Any) -> Iterator[Any]:
        for each in iterate(buffer):
            batches.append(each[1].base_offset)
            yield each

    monkeypatch.setattr(log_records, "iterate_batches", counted)
    assert missing(handle.wait_for_records, "t", 52) == ["2 records of 52"]
    handle.produce("t", [b"y"])
    assert missing(handle.wait_for_records, "t", 52) == ["1 record of 52"]

    assert batches == [50]


def test_few_of_many_records_are_counted_at_once(monkeypatch: pytest.MonkeyPatch, handle: Kafka) -> None:
    handle.create_topic("t", 1)
    for _ in range(50):
        handle.produce("t", [b"x" * 10_000])
    reads: list[int] = []
    monkeypatch.setattr(log_records, "COUNTED_BYTES", 10_000)
    leader = handle._bed.reader.leader("t", 0)
    assert leader is not None
    read = leader.log.read

    def counted(offset: int, *given: Any, **named: Any) -> Any:
        reads.append(offset)
        return read(offset, *given, **named)

    monkeypatch.setattr(leader.log, "read", counted)

    handle.wait_for_records("t", 3)

    assert reads == [0, 1, 2]


def test_records_stop_before_an_offset(handle: Kafka) -> None:
    handle.create_topic("t", 2)
    for partition in (0, 1):
        handle.produce("t", [b"a", b"b", b"c"], partition=partition)

    assert [each.value for each in handle.records("t", 0, start=1, stop=2)] == [b"b"]
    assert [(each.partition, each.offset) for each in handle.records("t", stop=1)] == [(0, 0), (1, 0)]
    assert len(handle.records("t", 0, stop=99)) == 3
    assert handle.records("t", 0, start=2, stop=2) == handle.records("t", 0, stop=0) == []


def test_consumption_up_to_offsets_is_waited_for(handle: Kafka) -> None:
    handle.create_topic("t", 2)
    for value in (b"a", b"b"):
        handle.produce("t", [value], partition=0)
    made = assigned(handle)
    polled(made, 2)

    handle.wait_until_consumed("t", upto="end")
    handle.wait_until_consumed("t", upto={0: 2})
    assert missing(handle.wait_until_consumed, "t", upto={0: 3, 1: 1}) == [
        "t-0: delivered up to 2, end 2; 3 wanted",
        "t-1: delivered up to 0, end 0; 1 wanted",
    ]
    assert missing(handle.wait_until_consumed, "t", upto={7: 1}) == [
        "there is no partition t-7: t has 2 partitions; 1 wanted"
    ]
    handle.produce("t", [b"c"], partition=0)
    polled(made, 1)
    handle.wait_until_consumed("t", upto={0: 3})
    made.close()


def test_consumption_up_to_a_marker_is_reached(handle: Kafka) -> None:
    """No consumer is given a record there, and one that ends before it has all."""
    handle.create_topic("t", 1)
    producer = Producer(handle.client_config("producer") | {"transactional.id": "x", "log_level": 0})
    producer.init_transactions(20)
    transaction(producer, b"a")
    made = assigned(handle)
    polled(made, 1)

    handle.wait_until_consumed("t", upto={0: 2})
    made.close()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"upto": "start"}, "upto='start': expected 'end', or offsets by partition"),
        ({"upto": "end", "count": 1}, "count=1 and upto='end': expected one of them"),
    ],
)
def test_wrong_ends_of_consumption_are_refused(handle: Kafka, given: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        handle.wait_until_consumed("t", **given)

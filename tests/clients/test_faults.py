"""Real clients under fault rules: what they do about it, and what the log has then."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaTimeoutError
from kafka.structs import OffsetAndMetadata, TopicPartition

from ottla import BrokerThread
from ottla.testing.faults.actions import Corrupt, Delay, Disconnect, Drop, Error, Hold, Rewrite
from ottla.testing.faults.faults import Fault

WAIT_S = 20
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 100, "num.partitions": 2}


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(settings=SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(WAIT_S)
        yield broker


def librdkafka(broker: BrokerThread, **settings: Any) -> Producer:
    quick = {"socket.timeout.ms": 1000, "retry.backoff.ms": 10, "log_level": 0}
    return Producer({"bootstrap.servers": broker.bootstrap, **quick, **settings})


def sent(producer: Producer, *values: bytes) -> list[Any]:
    """The error of each, by librdkafka."""
    errors: list[Any] = []
    for value in values:
        producer.produce("orders", value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    return errors


def log(broker: BrokerThread, count: int) -> list[bytes]:
    """So many records of partition 0, and that there is no further one."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([Assigned("orders", 0, 0)])
    values: list[bytes] = []
    while (message := consumer.poll(WAIT_S)) is not None and message.error() is None:
        values.append(message.value())
    consumer.close()
    assert len(values) == count, values
    return values


# Producers.


@pytest.mark.parametrize(("idempotent", "copies"), [(False, 2), (True, 1)])
def test_lost_acknowledgement_doubles_without_idempotence(broker: BrokerThread, idempotent: bool, copies: int) -> None:
    producer = librdkafka(broker, **{"enable.idempotence": idempotent})
    with broker.faults.fault(api="Produce", topic="orders", do=Drop("response")) as lost:
        assert sent(producer, b"book") == [None]

    assert lost.hits == 1
    assert log(broker, copies) == [b"book"] * copies


@pytest.mark.parametrize("idempotent", [False, True])
def test_lost_request_is_sent_again_and_there_once(broker: BrokerThread, idempotent: bool) -> None:
    producer = librdkafka(broker, **{"enable.idempotence": idempotent})
    with broker.faults.fault(api="Produce", topic="orders", do=Drop("request")):
        assert sent(producer, b"book") == [None]

    assert log(broker, 1) == [b"book"]


@pytest.mark.parametrize("kind", ["confluent", "kafka-python", "aiokafka"])
@pytest.mark.parametrize("code", ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT"])
def test_every_client_retries_a_retriable_error(broker: BrokerThread, kind: str, code: str) -> None:
    with broker.faults.fault(api="Produce", topic="orders", partition=0, do=Error(code), times=2) as fault:
        produce_by(kind, broker)

    assert fault.hits == 2
    assert log(broker, 1) == [b"book"]


@pytest.mark.parametrize("kind", ["confluent", "kafka-python", "aiokafka"])
def test_every_client_survives_a_cut_connection(broker: BrokerThread, kind: str) -> None:
    with broker.faults.fault(api="Produce", topic="orders", do=Disconnect("before", reset=True)) as fault:
        produce_by(kind, broker)

    assert fault.hits == 1
    assert log(broker, 1) == [b"book"]


def test_error_that_ends_a_send_reaches_the_application(broker: BrokerThread) -> None:
    with broker.faults.fault(api="Produce", topic="orders", do=Error("MESSAGE_TOO_LARGE")):
        (error,) = sent(librdkafka(broker), b"book")

    assert error.name() == "MSG_SIZE_TOO_LARGE"
    assert log(broker, 0) == []


def test_pipelined_batches_stay_in_order_behind_a_delay(broker: BrokerThread) -> None:
    producer = librdkafka(broker, **{"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1})
    values = [b"%d" % number for number in range(50)]
    with broker.faults.fault(api="Produce", nth="every 7", do=Delay(20, jitter=20)) as fault:
        assert sent(producer, *values) == [None] * 50

    assert fault.hits >= 7
    assert log(broker, 50) == values


def produce_by(kind: str, broker: BrokerThread) -> None:
    if kind == "confluent":
        assert sent(librdkafka(broker), b"book") == [None]
    elif kind == "kafka-python":
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap, retry_backoff_ms=10)
        producer.send("orders", b"book", partition=0).get(timeout=WAIT_S)
        producer.close()
    else:
        asyncio.run(aiokafka_produces(broker.bootstrap))


async def aiokafka_produces(bootstrap: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, retry_backoff_ms=10) as producer:
        await asyncio.wait_for(producer.send_and_wait("orders", b"book", partition=0), WAIT_S)


# Consumers.


@pytest.mark.parametrize("code", ["NOT_LEADER_OR_FOLLOWER", "UNKNOWN_LEADER_EPOCH", "KAFKA_STORAGE_ERROR"])
def test_fetch_errors_lose_nothing(broker: BrokerThread, code: str) -> None:
    sent(librdkafka(broker), *(b"%d" % number for number in range(20)))
    fault = broker.faults.fault(api="Fetch", topic="orders", partition=0, do=Error(code), times=2)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", retry_backoff_ms=10)
    consumer.assign([TopicPartition("orders", 0)])

    values, until = list[bytes](), time.monotonic() + WAIT_S
    while len(values) < 20 and time.monotonic() < until:
        values += [record.value for records in consumer.poll(500).values() for record in records]
    consumer.close()

    assert values == [b"%d" % number for number in range(20)]
    assert fault.hits == 2


def test_client_that_checks_sums_sees_a_corrupt_batch(broker: BrokerThread) -> None:
    sent(librdkafka(broker), b"book")
    corrupt = broker.faults.fault(api="Fetch", topic="orders", do=Corrupt("crc"))
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "checks", "check.crcs": True, "log_level": 0}
    )
    consumer.assign([Assigned("orders", 0, 0)])

    message = consumer.poll(WAIT_S)
    consumer.close()

    assert message is not None
    assert message.error() is not None
    assert message.error().name() == "_BAD_MSG"
    assert (corrupt.hits, log(broker, 1)) == (1, [b"book"])


@pytest.mark.parametrize("code", ["REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"])
def test_refused_commit_is_an_error_of_the_application(broker: BrokerThread, code: str) -> None:
    sent(librdkafka(broker), b"book")
    consumer = grouped(broker)
    (message,) = consumer.consume(1, WAIT_S)
    with broker.faults.fault(api="OffsetCommit", group="shop", topic="orders", do=Error(code)) as fault:
        with pytest.raises(KafkaException) as raised:
            consumer.commit(message=message, asynchronous=False)
        assert raised.value.args[0].name() == code
    consumer.close()

    assert fault.hits == 1


def test_lost_answer_to_a_commit_is_committed_all_the_same(broker: BrokerThread) -> None:
    sent(librdkafka(broker), b"book")
    partition = TopicPartition("orders", 0)
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, group_id="shop", request_timeout_ms=1500, session_timeout_ms=1000,
        heartbeat_interval_ms=200, retry_backoff_ms=10,
    )  # fmt: skip
    consumer.assign([partition])
    with (
        broker.faults.fault(api="OffsetCommit", group="shop", do=Drop("response")) as lost,
        pytest.raises(KafkaTimeoutError),
    ):
        consumer.commit({partition: OffsetAndMetadata(1, "", -1)})

    assert lost.hits == 1
    assert consumer.committed(partition) == 1
    consumer.close()


def test_lost_join_answer_ends_in_one_member(broker: BrokerThread) -> None:
    """The first has only a member id, the second a place in the group; both times the client asks again (G11)."""
    sent(librdkafka(broker), b"book")
    with broker.faults.fault(api="JoinGroup", group="shop", nth=[1, 3], do=Disconnect("after"), times=2) as lost:
        consumer = grouped(broker)
        (message,) = consumer.consume(1, WAIT_S)
    assert message.value() == b"book"
    assert lost.hits == 2

    (group,) = described(broker, "shop")
    consumer.close()
    assert [len(group.members), group.state.name] == [1, "STABLE"]


def test_held_sync_of_the_leader_holds_all_members(broker: BrokerThread) -> None:
    """Exact: the others have joined, and none has its partitions before the leader's assignment is let through."""
    held = broker.faults.fault(api="SyncGroup", group="shop", do=Hold())
    first = grouped(broker)
    polling = threading.Thread(target=first.consume, args=(1, 3))
    polling.start()
    held.wait(hits=1, within=WAIT_S)

    (group,) = described(broker, "shop")
    assert group.state.name == "COMPLETING_REBALANCING"
    held.release()
    polling.join()

    (group,) = described(broker, "shop")
    first.close()
    assert group.state.name == "STABLE"


def test_client_goes_by_the_versions_that_it_is_given(broker: BrokerThread) -> None:
    fetches = broker.faults.fault(api="Fetch", do="observe")
    broker.faults.fault(api="ApiVersions", do=Rewrite({"versions": {"Fetch": "4-7"}}), times="unlimited")
    sent(librdkafka(broker), b"book")

    assert log(broker, 1) == [b"book"]
    assert {hit.version for hit in fetches.hit_log} <= {4, 5, 6, 7}


def test_rule_with_a_wrong_name_says_what_came_instead(broker: BrokerThread) -> None:
    wrong: Fault = broker.faults.fault(api="Produce", topic="order", do=Drop("response"))
    sent(librdkafka(broker), b"book")

    (unused,) = broker.faults.unused()
    assert unused.fault is wrong
    assert unused.text.endswith("1 request matched all but topic: 'orders' ≠ 'order'")


async def test_aiokafka_consumes_through_a_slow_and_broken_coordinator() -> None:
    with BrokerThread(settings=SETTINGS) as broker:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            await producer.send_and_wait("orders", b"book")
        broker.faults.add_all(
            [
                "api=FindCoordinator,key=shop,error=COORDINATOR_NOT_AVAILABLE,times=2",
                "api=JoinGroup,group=shop,error=COORDINATOR_LOAD_IN_PROGRESS,times=1",
                "api=OffsetFetch,group=shop,error=NOT_COORDINATOR,times=1",
                "api=Heartbeat,group=shop,delay=50",
            ]
        )
        consumer = AIOKafkaConsumer(
            "orders", bootstrap_servers=broker.bootstrap, group_id="shop", auto_offset_reset="earliest",
            retry_backoff_ms=20, heartbeat_interval_ms=200,
        )  # fmt: skip
        async with consumer:
            message = await asyncio.wait_for(consumer.getone(), WAIT_S)

        assert message.value == b"book"
        assert [fault.hits for fault in broker.faults][:3] == [2, 1, 1]


def grouped(broker: BrokerThread, **settings: Any) -> Consumer:
    quick = {"session.timeout.ms": 6000, "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "shop", **quick, **settings})
    consumer.subscribe(["orders"])
    return consumer


def described(broker: BrokerThread, group: str) -> list[Any]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return [future.result() for future in admin.describe_consumer_groups([group]).values()]

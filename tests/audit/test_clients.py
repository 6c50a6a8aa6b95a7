"""What real clients do under the audit: lost answers, and what deletes records without losing any."""

import time
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from ottla.testing.audit.findings import AuditFinding, Blame, FindingKind
from ottla.testing.audit.history import SeenConnection
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.audit.workload import Client, produce, records
from tests.kit.members import consumer, polled, send
from tests.waiting import wait_for


def of_broker(kafka: Kafka) -> list[list[str]]:
    return [each.lines() for each in kafka.audit() if each.kind.blame is Blame.BROKER]


def kinds(found: list[AuditFinding]) -> list[FindingKind]:
    return [each.kind for each in found]


@pytest.mark.parametrize(("is_idempotent", "copies", "found"), [(True, 1, []), (False, 2, [FindingKind.P1])])
def test_a_lost_answer_doubles_without_idempotence(
    handle: Kafka, is_idempotent: bool, copies: int, found: list[FindingKind]
) -> None:
    handle.create_topic("orders", 1)
    config: dict[str, Any] = handle.client_config("producer") | {
        "enable.idempotence": is_idempotent,
        "socket.timeout.ms": 1000,
        "log_level": 0,
    }
    producer = Producer(config)
    with handle.fault(api="Produce", topic="orders", times=1, do={"drop": "response"}):
        producer.produce("orders", b"book")
        assert producer.flush(20) == 0

    assert len(handle.records("orders")) == copies
    assert kinds(handle.audit()) == found
    assert all(each.explained_by == "fault rule 'fault-1'" and len(each.events) == 2 for each in handle.audit())
    del producer


@pytest.mark.parametrize(("is_idempotent", "copies", "found"), [(True, 1, []), (False, 2, [FindingKind.P1])])
async def test_an_answer_cut_off_doubles_without_idempotence(
    handle: Kafka, is_idempotent: bool, copies: int, found: list[FindingKind]
) -> None:
    handle.create_topic("orders", 1)
    config = {**handle.client_config("producer", "aiokafka"), "enable_idempotence": is_idempotent}
    with handle.fault(api="Produce", topic="orders", times=1, do={"disconnect": "after"}):
        async with AIOKafkaProducer(**config, acks="all") as producer:
            await producer.send_and_wait("orders", b"book")

    assert len(handle.records("orders")) == copies
    assert kinds(handle.audit()) == found


GONE_WITHIN_S = 20


def hang_up(handle: Kafka, client: Client, request: Any) -> None:
    """The client resets its connection when the answer is on its way; the broker has heard of it."""
    client.send_and_hang_up(request)
    wait_for(lambda: not handle.connections, GONE_WITHIN_S, "the broker has not seen the connection go")


@pytest.mark.parametrize("is_seeded", [False, True])
def test_an_answer_that_was_built_is_in_doubt(monkeypatch: pytest.MonkeyPatch, handle: Kafka, is_seeded: bool) -> None:
    """KT-15: taken for an acknowledgement, it makes the repetition look like something that the application means."""
    if is_seeded:
        monkeypatch.setattr(SeenConnection, "has_got", lambda _, answered: answered > 0)
    handle.create_topic("orders", 1)
    batch = records([b"book"])
    client = Client(handle.bootstrap, "plain")
    hang_up(handle, client, produce("orders", 0, bytes(batch)))
    client.call(produce("orders", 0, bytes(batch)))

    assert len(handle.records("orders")) == 2
    assert kinds(handle.audit()) == ([] if is_seeded else [FindingKind.P1])
    client.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_a_rule_cuts_off_obliges_nothing(handle: Kafka, when: str) -> None:
    handle.create_topic("orders", 1)
    client = Client(handle.bootstrap, "plain")
    rule = handle.fault(api="Produce", probability=0.4, do={"disconnect": when})
    for number in range(40):
        try:
            client.call(produce("orders", 0, records([b"%d" % number])))
        except (AssertionError, OSError):
            client.close()
    acknowledged = 40 - rule.hits

    assert len(handle.records("orders")) == (acknowledged if when == "before" else 40)
    assert handle.audit() == []
    client.close()


def test_retention_loses_nothing(handle: Kafka) -> None:
    handle.create_topic("orders", 1, configs={"retention.ms": 1000, "segment.ms": 10})
    producer = Producer(handle.client_config("producer") | {"log_level": 0})
    old_ms = int(time.time() * 1000) - 60_000
    for number in range(20):
        producer.produce("orders", b"%d" % number, timestamp=old_ms + 100 * number)
        assert producer.flush(20) == 0
    del producer

    handle.wait(lambda kafka: kafka.topic("orders").partitions[0].log_start_offset > 0, describe="retention")

    assert of_broker(handle) == []


def test_compaction_loses_nothing(handle: Kafka) -> None:
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0, "segment.ms": 10}
    handle.create_topic("orders", 1, configs=configs)
    producer = Producer(handle.client_config("producer") | {"log_level": 0})
    began_ms = int(time.time() * 1000) - 60_000
    for number in range(20):
        producer.produce("orders", b"%d" % number, key=b"k", timestamp=began_ms + 100 * number)
        assert producer.flush(20) == 0
    del producer

    handle.wait(lambda kafka: len(kafka.records("orders")) < 10, describe="compaction")

    assert of_broker(handle) == []


def test_deleted_topics_and_records_are_not_lost(handle: Kafka) -> None:
    for _ in range(2):
        handle.create_topic("orders", 1)
        # Batches of their own: one that lies around the new log start is there as a whole.
        for value in (b"book", b"pen", b"cup"):
            send(handle, "orders", value)
        handle.topic("orders").delete_records(0, before=2)
        assert of_broker(handle) == []
        handle.topic("orders").delete()
        assert of_broker(handle) == []
    handle.create_topic("orders", 1)
    assert of_broker(handle) == []


def test_a_reset_begins_another_audit(handle: Kafka) -> None:
    handle.create_topic("orders", 1)
    producer = send(handle, "orders", b"book")
    handle.reset()
    handle.create_topic("orders", 1)
    producer.produce("orders", b"pen")
    producer.flush(20)

    assert of_broker(handle) == []
    del producer


def test_what_a_test_forges_is_no_finding(handle: Kafka) -> None:
    handle.create_topic("orders", 1)
    handle.produce("orders", [b"a"], as_producer=(7, 0, 0))
    send(handle, "orders", b"b")
    handle.produce("orders", [b"a"], as_producer=(7, 0, 1))

    assert handle.audit() == []


def test_a_group_that_does_its_work_has_no_finding(handle: Kafka) -> None:
    handle.create_topic("orders", 2)
    send(handle, "orders", *(b"%d" % number for number in range(10)))
    with consumer(handle, "shop", "orders") as made:
        assert len(polled(made, 10)) == 10
        made.commit(asynchronous=False)

    assert handle.audit() == []


def test_records_that_one_member_did_not_commit_come_again(handle: Kafka) -> None:
    handle.create_topic("orders", 1)
    send(handle, "orders", b"a", b"b", b"c")
    for client_id in ("first", "second"):
        with consumer(handle, "shop", "orders", **{"client.id": client_id, "enable.auto.commit": False}) as made:
            assert polled(made, 3) == [b"a", b"b", b"c"]

    (again,) = handle.audit()

    assert (again.kind, again.where, again.what) == (FindingKind.P4, "shop orders-0", "3 records from offset 0 on")


async def test_audit_is_on_the_handle_for_coroutines(shared_bed: Testbed, handle: Kafka) -> None:
    from ottla.testing.async_handle import KafkaAsync

    handle.create_topic("orders", 1)

    assert await KafkaAsync(shared_bed).audit() == []


def test_without_an_audit_nothing_is_recorded() -> None:
    bed = Testbed(audit="off")
    bed.start()
    try:
        send(Kafka(bed), "orders", b"a")
        assert bed.wire.recorder is None
        assert Kafka(bed).audit() == []
    finally:
        bed.stop()

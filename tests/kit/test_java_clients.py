"""The Java client at the kit: an old producer after a reset and a restore (TK07), time that is moved or stands still
(TK13, TK16), and lost acknowledgements (TK20)."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby

import pytest

from ottla.coordinator.facts import Cause
from ottla.protocol.errors import ErrorCode, TopicAlreadyExists
from ottla.testing.audit.findings import FindingKind
from ottla.testing.handle import Kafka
from tests.kit.clock.test_clients import SESSION_MS, Members, doomed, kill_and_advance, members, removed
from tests.kit.java_clients import JavaClients
from tests.kit.members import send

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

# `make nightly` has time stand still for as long as Kafka's clients wait for most things.
FROZEN_S = 60 if "OTTLA_SUITE" in os.environ else 4
IMPATIENT = {"request.timeout.ms": 1000, "delivery.timeout.ms": 2000, "max.block.ms": 2000}
PATIENT = {"request.timeout.ms": 1000, "delivery.timeout.ms": 30_000}


@pytest.fixture(scope="module")
def java() -> Iterator[JavaClients]:
    made = JavaClients()
    yield made
    made.stop()


def producer_config(handle: Kafka, *, idempotent: bool, **more: object) -> dict[str, object]:
    return handle.client_config("producer", "java") | {"enable.idempotence": idempotent} | more


@contextmanager
def old_producer(java: JavaClients, handle: Kafka) -> Iterator[None]:
    """Its first record is in the log."""
    with java.producer("old", producer_config(handle, idempotent=True, **IMPATIENT)):
        assert java.send("old", "orders", "old") == "sent 0 0"
        yield


def answers_to_a_ghost(java: JavaClients, handle: Kafka) -> list[ErrorCode]:
    """Those that differ from the one before, but for the one to the id of a topic that has another now. The producer
    tries until its `delivery.timeout.ms`, and gives up."""
    wire = handle._bed.wire
    begin = wire.count
    assert java.send("old", "orders", "ghost") == "failed TimeoutException"
    answered = [each.error for each in wire.since(begin) if each.api == "Produce" and each.error is not None]
    return [ErrorCode(each) for each, _ in groupby(answered) if each != ErrorCode.UNKNOWN_TOPIC_ID]


def values(handle: Kafka) -> list[bytes | None]:
    return [record.value for record in handle.records("orders")]


# TK07.


def test_old_java_producer_writes_nothing_after_a_reset(java: JavaClients, handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    with old_producer(java, handle):
        handle.reset()
        # The old producer may have asked for it in the meantime, which creates it.
        with suppress(TopicAlreadyExists):
            handle.create_topic("orders", partitions=1)

        assert answers_to_a_ghost(java, handle) == [ErrorCode.UNKNOWN_PRODUCER_ID]

        assert values(handle) == []
        send(handle, "orders", b"new", **{"enable.idempotence": True})
        assert values(handle) == [b"new"]


def test_java_producer_of_after_the_snapshot_writes_nothing(java: JavaClients, handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    handle.snapshot("seeded")
    with old_producer(java, handle):
        handle.restore("seeded")

        assert answers_to_a_ghost(java, handle) == [ErrorCode.UNKNOWN_PRODUCER_ID]

        assert values(handle) == []


def test_java_producer_that_wrote_since_writes_nothing(java: JavaClients, handle: Kafka) -> None:
    """It begins another epoch by itself, from sequence number 0, when it is out of order."""
    handle.create_topic("orders", partitions=1)
    with old_producer(java, handle):
        handle.snapshot("seeded")
        assert java.send("old", "orders", "later") == "sent 0 1"
        handle.restore("seeded")

        refused = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID]
        assert answers_to_a_ghost(java, handle) == refused

        assert values(handle) == [b"old"]


def test_java_producer_that_the_snapshot_knows_goes_on(java: JavaClients, handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    with old_producer(java, handle):
        handle.snapshot("seeded")
        handle.produce("orders", [b"of another"])
        handle.restore("seeded")

        assert java.send("old", "orders", "next") == "sent 0 1"

        assert values(handle) == [b"old", b"next"]


# TK13, TK16.


@contextmanager
def four_members(java: JavaClients, handle: Kafka) -> Iterator[Members]:
    """Of all libraries, in one group."""
    config = handle.client_config("consumer", "java") | {
        # The one that all of them have.
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "group.id": "shop",
        "client.id": "j",
        "session.timeout.ms": SESSION_MS,
        "enable.auto.commit": False,
    }
    with members(handle) as others, java.member("j", "orders", config):
        handle.group("shop").wait_until_stable(members=4, assigned={"orders": 6}, within=60)
        yield others


def errors_of(java: JavaClients, name: str) -> list[str]:
    return [each for each in java.said(name) if each.startswith("error")]


def test_only_the_member_that_was_killed_expires(java: JavaClients, handle: Kafka) -> None:
    """TK13, with living members of all libraries: their generation changes once."""
    shop = handle.group("shop")
    with four_members(java, handle) as living:
        with doomed(handle, members=5) as process:
            generation = shop.generation
            assert kill_and_advance(handle, process, "10s") == ["doomed"]
            shop.wait_until_stable(members=4, assigned={"orders": 6})
        assert shop.generation == generation + 1
        assert removed(shop) == {"doomed": Cause.SESSION_EXPIRED}
        send(handle, "orders", *(b"%d" % number for number in range(60)))
        handle.wait_until_consumed("orders", count=60)
    assert living.errors == errors_of(java, "j") == []


def test_all_libraries_consume_while_time_is_frozen(java: JavaClients, handle: Kafka) -> None:
    """TK16."""
    handle.create_topic("stamped", partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
    shop = handle.group("shop")
    sent: list[bytes] = []
    with four_members(java, handle) as living:
        generation, before = shop.generation, len(java.said("j"))

        def read() -> set[bytes]:
            return {*living.values, *(each.split()[1].encode() for each in java.said("j")[before:])}

        handle.clock.freeze()
        end = time.monotonic() + FROZEN_S
        while time.monotonic() < end or len(sent) < 24:
            sent.append(b"%d" % len(sent))
            send(handle, "stamped", sent[-1])
            handle.produce("orders", [sent[-1]], partition=len(sent) % 6)
            time.sleep(FROZEN_S / 30)
        handle.wait(lambda _: read() == set(sent), describe="all is delivered", within=60)

        assert shop.generation == generation
        assert living.errors == errors_of(java, "j") == []
        stamps = {each.timestamp for each in handle.records("stamped")}
    assert len(stamps) == 1
    assert len(handle.records("stamped")) == len(sent)


# TK20.


@pytest.mark.parametrize(("idempotent", "copies", "found"), [(True, 1, []), (False, 2, [FindingKind.P1])])
def test_lost_answer_doubles_without_idempotence(
    java: JavaClients, handle: Kafka, idempotent: bool, copies: int, found: list[FindingKind]
) -> None:
    handle.create_topic("orders", partitions=1)
    with ExitStack() as stack:
        lost = stack.enter_context(handle.fault(api="Produce", topic="orders", times=1, do={"drop": "response"}))
        stack.enter_context(java.producer("till", producer_config(handle, idempotent=idempotent, **PATIENT)))
        assert java.send("till", "orders", "book").startswith("sent 0")

        assert lost.hits == 1
        assert values(handle) == [b"book"] * copies
        assert [each.kind for each in handle.audit()] == found
        assert all(each.explained_by == "fault rule 'fault-1'" for each in handle.audit())

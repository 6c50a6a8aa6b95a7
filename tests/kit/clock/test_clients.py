"""Unmodified clients, in this process and in others, while the time of their broker is moved (TK13 to TK16, TK18)."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import KafkaConsumer

from ottla.coordinator.facts import Cause, MemberRemoved
from ottla.testing import DeadlineExceeded
from ottla.testing.group_handle import KafkaGroup
from ottla.testing.handle import Kafka
from ottla.testing.step_lists import running
from ottla.testing.step_lists.actions import run_action
from ottla.testing.testbed import Testbed
from tests.kit.members import KAFKA_PYTHON_POLL_MS, consumer, send

SESSION_MS = 6_000
# A member in a process of its own, which can be killed. It polls until then.
MEMBER = """
import sys
from confluent_kafka import Consumer

made = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "shop", "client.id": "doomed", "log_level": 0,
                 "session.timeout.ms": 6000, "heartbeat.interval.ms": 500, "auto.offset.reset": "earliest"})
made.subscribe(["orders"])
while True:
    made.poll(0.1)
"""


class Members:
    """Consumers of the group `shop` that poll, each in a thread of its own, one of each library."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._over = threading.Event()
        self.errors: list[object] = []
        self.values: list[bytes] = []

    def _until_over(self, poll: Any) -> None:
        try:
            while not self._over.is_set():
                poll()
        except Exception as error:
            self.errors.append(error)

    def confluent(self) -> None:
        with consumer(self._kafka, "shop", "orders", **self._config("client.id", "session.timeout.ms", "ck")) as made:

            def poll() -> None:
                message = made.poll(0.1)
                if message is not None and message.error() is not None:
                    self.errors.append(message.error())
                elif message is not None:
                    self.values.append(message.value())

            self._until_over(poll)

    def kafka_python(self) -> None:
        config = self._kafka.client_config("consumer", "kafka-python")
        config |= self._config("client_id", "session_timeout_ms", "kp")
        made = KafkaConsumer("orders", group_id="shop", **config)

        def poll() -> None:
            for records in made.poll(timeout_ms=KAFKA_PYTHON_POLL_MS).values():
                self.values += [record.value for record in records]

        self._until_over(poll)
        made.close(autocommit=False)

    def aiokafka(self) -> None:
        async def consume() -> None:
            config = self._kafka.client_config("consumer", "aiokafka")
            config |= self._config("client_id", "session_timeout_ms", "ak")
            made = AIOKafkaConsumer("orders", group_id="shop", **config)
            await made.start()
            try:
                while not self._over.is_set():
                    for records in (await made.getmany(timeout_ms=100)).values():
                        self.values += [record.value for record in records]
            finally:
                await made.stop()

        try:
            asyncio.run(consume())
        except Exception as error:
            self.errors.append(error)

    @staticmethod
    def _config(client_id: str, session: str, name: str) -> dict[str, Any]:
        return {client_id: name, session: SESSION_MS}

    def stop(self) -> None:
        self._over.set()


@contextmanager
def members(kafka: Kafka) -> Iterator[Members]:
    """Three that have formed a group."""
    kafka.create_topic("orders", partitions=6)
    made = Members(kafka)
    threads = [threading.Thread(target=each) for each in (made.confluent, made.kafka_python, made.aiokafka)]
    for thread in threads:
        thread.start()
    try:
        kafka.group("shop").wait_until_stable(members=3, assigned={"orders": 6})
        yield made
    finally:
        made.stop()
        for thread in threads:
            thread.join()


@contextmanager
def doomed(kafka: Kafka, members: int = 4) -> Iterator["subprocess.Popen[bytes]"]:
    """A further one, for which the group is stable again; with it there are so many."""
    process = subprocess.Popen([sys.executable, "-c", MEMBER, kafka.bootstrap])
    try:
        kafka.group("shop").wait_until_stable(members=members, assigned={"orders": 6})
        yield process
    finally:
        process.kill()
        process.wait()


def removed(group: KafkaGroup) -> dict[str, Cause]:
    """Who did not leave by itself, by client id, and why."""
    facts = [fact for _, fact in group.facts if isinstance(fact, MemberRemoved)]
    return {fact.client_id: fact.cause for fact in facts if fact.cause is not Cause.MEMBER_LEFT}


def kill_and_advance(kafka: Kafka, process: "subprocess.Popen[bytes]", delta: str) -> list[str]:
    """Whose sessions ended, by client id."""
    process.kill()
    process.wait()
    connections = kafka._bed.reader.connections
    kafka.wait(lambda _: all(each.client_id != "doomed" for each in connections()), describe="its connections end")
    fired = kafka.clock.advance(delta)
    return [each.what.split("member ")[1].split("-")[0] for each in fired if each.kind == "session"]


def test_only_the_member_that_was_killed_expires(handle: Kafka) -> None:
    """TK13. The others' generation changes once."""
    shop = handle.group("shop")
    with members(handle) as living:
        with doomed(handle) as process:
            generation = shop.generation
            assert kill_and_advance(handle, process, "10s") == ["doomed"]
            shop.wait_until_stable(members=3, assigned={"orders": 6})
        assert shop.generation == generation + 1
        assert removed(shop) == {"doomed": Cause.SESSION_EXPIRED}
        send(handle, "orders", *(b"%d" % number for number in range(30)))
        handle.wait_until_consumed("orders", count=30)
    assert living.errors == []


def test_spared_member_that_dies_afterwards_expires(handle: Kafka) -> None:
    """It has sent nothing since before the jump, and then its connection closes: a session later it is over."""
    spared_member_expires(handle)


def spared_member_expires(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=6)
    process = subprocess.Popen([sys.executable, "-c", MEMBER, handle.bootstrap])
    try:
        shop = handle.group("shop")
        shop.wait_until_stable(members=1)
        # No heartbeat repairs what the jump has done; its connection is open.
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert [each for each in handle.clock.advance("8d") if each.kind == "session"] == []
        (member,) = shop.members
        assert 0 < member.session_ends_in_ms <= SESSION_MS
        assert kill_and_advance(handle, process, "6s") == ["doomed"]
        assert shop.members == ()
    finally:
        process.kill()
        process.wait()


def test_all_expire_in_order_and_rejoin_by_themselves(handle: Kafka) -> None:
    """TK14."""
    shop = handle.group("shop")
    with members(handle) as living:
        fired = [each for each in handle.clock.advance("10s", sessions="expire") if each.kind == "session"]
        assert sorted(each.what.split("member ")[1].split("-")[0] for each in fired) == ["ak", "ck", "kp"]
        assert [each.at for each in fired] == sorted(each.at for each in fired)
        shop.wait_until_stable(members=3, assigned={"orders": 6})
        assert removed(shop) == dict.fromkeys(("ck", "kp", "ak"), Cause.SESSION_EXPIRED)
    assert living.errors == []


def test_named_members_expire(handle: Kafka) -> None:
    shop = handle.group("shop")
    with members(handle):
        (wanted,) = [each.member_id for each in shop.members if each.client_id == "kp"]
        fired = [each for each in handle.clock.advance("10s", sessions={"kp"}) if each.kind == "session"]
        assert [each.what for each in fired] == [f"group shop, member {wanted}"]
        shop.wait_until_stable(members=3, assigned={"orders": 6})


def test_clients_go_on_while_time_is_frozen(handle: Kafka) -> None:
    """TK16, until each has fetched in vain some times: no error, no rebalance, and stamps repeat."""
    with members(handle) as living:
        handle.group("shop").wait_until_generation(handle.group("shop").generation)
        goes_on_frozen(handle, living)


def goes_on_frozen(handle: Kafka, living: Members) -> None:
    shop = handle.group("shop")
    handle.create_topic("stamped", partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
    handle.clock.freeze()
    generation, wire = shop.generation, handle._bed.wire
    begin = wire.count

    def answered_fetches() -> dict[str | None, int]:
        counts: dict[str | None, int] = {}
        for each in wire.since(begin):
            if each.api == "Fetch" and each.error is not None:
                counts[each.connection.client_id] = counts.get(each.connection.client_id, 0) + 1
        return counts

    def all_have_fetched(_: Kafka) -> bool:
        counts = answered_fetches()
        return all(counts.get(name, 0) >= 5 for name in ("ck", "kp", "ak"))

    for number in range(3):
        send(handle, "stamped", b"%d" % number)
        send(handle, "orders", b"%d" % number)
        handle.wait(all_have_fetched, describe="each fetches, and has its answer")
        begin = wire.count
    handle.wait(lambda _: len(living.values) == 3, describe="all is delivered")

    assert shop.generation == generation
    assert living.errors == []
    assert len({each.timestamp for each in handle.records("stamped")}) == 1


def test_producer_of_real_time_is_hinted_at_when_it_is_behind(handle: Kafka) -> None:
    """TK18: its records are eight days old, and retention takes them at its next round."""
    handle.create_topic("orders", partitions=1)
    handle.clock.advance("8d")
    send(handle, "orders", b"a")
    hint = "a producer of orders stamps records by its own clock, 8 d behind broker time: retention may take them"
    with pytest.raises(DeadlineExceeded, match=hint):
        handle.wait_for_records("orders", 2, within=0.01)
    handle.clock.advance("1s")
    assert handle.records("orders") == []
    assert any(each.startswith(hint) for each in handle._bed.call(handle._bed.clock.report))


def test_producer_of_real_time_is_refused_when_it_is_ahead(handle: Kafka) -> None:
    """TK18, after `set(2020)`."""
    handle.create_topic("orders", partitions=1)
    handle.create_topic("appended", partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
    handle.clock.set(datetime(2020, 1, 1, tzinfo=UTC))
    refused: list[KafkaError] = []
    producer = Producer(handle.client_config("producer") | {"log_level": 0})
    producer.produce("orders", b"a", on_delivery=lambda error, _: refused.append(error))
    producer.flush(20)
    send(handle, "appended", b"a")

    assert [error.code() for error in refused] == [KafkaError.INVALID_TIMESTAMP]
    (hint,) = handle._bed.call(handle._bed.clock.hints)
    assert hint.startswith("a producer of orders stamps records by its own clock")
    assert "ahead of broker time: they may be refused as too far ahead; use message.timestamp.type=" in hint
    (record,) = handle.records("appended")
    assert datetime.fromtimestamp(record.timestamp / 1000, UTC).year == 2020


def test_members_are_spared_also_where_a_script_ends_a_walk(handle: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk that ends before its target has moved their deadlines by all of the jump: they come back by the rest."""
    handle.create_topic("orders", partitions=6)
    slow = {"client.id": "slow", "session.timeout.ms": 30_000}
    with doomed(handle, members=1) as process, consumer(handle, "other", "orders", **slow):
        handle.wait(lambda kafka: kafka.group("other").members, describe="a member has joined")
        # No heartbeat repairs what the jump has done; its connection is open.
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        script = handle.script(
            [{"after": {"fact": "MemberRemoved", "group": "other"}, "do": {"fault": "api=Fetch,observe"}}]
        )

        left_ms: list[int | None] = []

        async def noting(bed: Testbed, name: str, given: Any) -> None:
            left_ms.extend(each.session_ends_in_ms for each in bed.reader.group("shop").members)
            await run_action(bed, name, given)

        monkeypatch.setattr(running, "run_action", noting)
        fired = handle.clock.advance("8d", sessions={"slow"})

        assert script.is_done
        assert [0 < (each or 0) <= SESSION_MS for each in left_ms] == [True]
        assert [each.what.split(",")[0] for each in fired if each.kind == "session"][:1] == ["group other"]
        (member,) = handle.group("shop").members
        assert 0 < member.session_ends_in_ms <= SESSION_MS


def test_transactions_of_living_producers_are_not_spared(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    config = {"transactional.id": "till", "transaction.timeout.ms": 60_000, "log_level": 0}
    with ExitStack() as stack:
        till = Producer(handle.client_config("producer") | config)
        till.init_transactions(20)
        till.begin_transaction()
        till.produce("orders", b"a")
        till.flush(20)
        begin = handle.clock.now()
        fired = handle.clock.advance("2m")
        (ended,) = [each.at for each in fired if each.what == "transactional id till"]
        assert ended - begin < timedelta(seconds=71)
        stack.callback(till.purge)
        with pytest.raises(KafkaException):
            till.commit_transaction(10)


def test_what_eight_days_bring_comes_in_its_order(handle: Kafka) -> None:
    """TK15: a session, a transaction, retention, offsets and compaction, by one call."""
    handle.create_topic("orders", partitions=6)
    handle.create_topic("stock", partitions=1, configs={"cleanup.policy": "compact", "max.compaction.lag.ms": 1000})
    handle.produce("stock", [(b"book", b"1"), (b"book", b"2")])
    send(handle, "orders", b"a")
    with consumer(handle, "old", "orders") as old:
        old.poll(20)
        old.commit(asynchronous=False)
    process = subprocess.Popen([sys.executable, "-c", MEMBER, handle.bootstrap])
    handle.group("shop").wait_until_stable(members=1)
    config = {"transactional.id": "till", "transaction.timeout.ms": 60_000, "log_level": 0}
    till = Producer(handle.client_config("producer") | config)
    till.init_transactions(20)
    till.begin_transaction()
    till.produce("orders", b"b")
    till.flush(20)
    process.kill()
    process.wait()
    connections = handle._bed.reader.connections
    handle.wait(lambda _: all(each.client_id != "doomed" for each in connections()), describe="its connections end")

    fired = handle.clock.advance("8d")

    assert [each.at for each in fired] == sorted(each.at for each in fired)
    ended = [each.kind for each in fired if each.kind == "session" or each.what == "transactional id till"]
    assert ended == ["session", "transaction-timeout"]
    assert handle.records("orders", isolation="log") == []
    assert handle.groups == []
    handle.clock.advance("2s")
    assert [each.value for each in handle.records("stock")] == [b"2"]
    till.purge()

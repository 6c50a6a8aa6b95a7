"""Consume, transform, produce with offsets in the transaction: each record is transformed once (I-24)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import ClusterThread
from tests.clients.test_aiokafka import consumer as aio_consumer
from tests.clients.test_aiokafka import produce as aio_produce
from tests.clients.test_aiokafka import take
from tests.clients.test_confluent_kafka import WAIT_S, consumed, consumer, produced
from tests.served import ServedBroker
from tests.waiting import wait_for

GROUP = "transformers"
INPUT = [str(number) for number in range(12)]
BATCH = 4
LONG_S = 60


@contextmanager
def served(brokers: int, broker: ServedBroker) -> Iterator[Any]:
    """One broker as a user starts it, or a cluster in this process."""
    if brokers == 1:
        yield broker
        return
    with ClusterThread(brokers=brokers) as cluster:
        yield cluster


def create_topics(broker: Any, replicas: int, partitions: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(name, partitions, replicas) for name in ("in", "out")]
    for created in admin.create_topics(topics).values():
        created.result(WAIT_S)


class Transformer:
    """One consumer of the group, and its producer."""

    def __init__(self, broker: Any, transactional_id: str) -> None:
        self.reader: Consumer = consumer(broker, GROUP, isolation_level="read_committed")
        self.reader.subscribe(["in"])
        self.sender = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
        self.sender.init_transactions(WAIT_S)

    def transform(self, count: int, *, commit: bool) -> None:
        messages = consumed(self.reader, count)
        self.sender.begin_transaction()
        for message in messages:
            self.sender.produce("out", value=b"of " + (message.value() or b""), key=message.key())
        positions = self.reader.position(self.reader.assignment())
        self.sender.send_offsets_to_transaction(positions, self.reader.consumer_group_metadata(), WAIT_S)
        if commit:
            self.sender.commit_transaction(WAIT_S)
        else:
            assert self.sender.flush(WAIT_S) == 0
            self.sender.abort_transaction(WAIT_S)

    def close(self) -> None:
        self.reader.close()


def read(broker: Any, count: int) -> list[str]:
    reader: Consumer = consumer(broker, "readers", isolation_level="read_committed")
    reader.subscribe(["out"])
    messages = consumed(reader, count)
    assert reader.poll(0.5) is None
    reader.close()
    return [str(message.value(), "utf-8") for message in messages]


def committed(broker: Any) -> int:
    """By the group, over all partitions."""
    reader: Consumer = consumer(broker, GROUP)
    partitions = reader.list_topics("in", WAIT_S).topics["in"].partitions
    offsets = reader.committed([TopicPartition("in", index) for index in partitions], WAIT_S)
    reader.close()
    return sum(max(each.offset, 0) for each in offsets)


@pytest.mark.parametrize("brokers", [1, 3])
def test_each_record_is_transformed_once(broker: ServedBroker, brokers: int) -> None:
    with served(brokers, broker) as cluster:
        create_topics(cluster, brokers)
        produced(cluster, "in", INPUT)
        first = Transformer(cluster, "one")
        first.transform(BATCH, commit=True)
        first.transform(BATCH, commit=False)
        first.close()
        assert committed(cluster) == BATCH

        # What was aborted comes again.
        second = Transformer(cluster, "one")
        for _ in range(2):
            second.transform(BATCH, commit=True)
        second.close()

        assert sorted(read(cluster, len(INPUT))) == sorted(f"of {value}" for value in INPUT)
        assert committed(cluster) == len(INPUT)


class Member(Transformer):
    """One of several members: what it has read and not committed, it gives up when the group rebalances."""

    def __init__(self, broker: Any, transactional_id: str) -> None:
        super().__init__(broker, transactional_id)
        self.assignments = 0
        self._messages: list[Any] = []
        self.reader.subscribe(["in"], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, _reader: Consumer, _places: list[TopicPartition]) -> None:
        self.assignments += 1

    def _revoked(self, _reader: Consumer, _places: list[TopicPartition]) -> None:
        self._messages.clear()

    def step(self, most: int) -> None:
        """A transaction of what comes within a moment, if anything does."""
        self._messages = []
        while len(self._messages) < most and (message := self.reader.poll(0.2)) is not None:
            assert message.error() is None, message.error()
            self._messages.append(message)
        if self._messages:
            self.copy(self._messages)

    def copy(self, messages: list[Any]) -> None:
        offsets: dict[int, int] = {}
        self.sender.begin_transaction()
        for message in messages:
            self.sender.produce("out", value=b"of " + message.value(), key=message.key())
            offsets[message.partition()] = message.offset() + 1
        positions = [TopicPartition("in", partition, offset) for partition, offset in offsets.items()]
        try:
            self.sender.send_offsets_to_transaction(positions, self.reader.consumer_group_metadata(), WAIT_S)
        except KafkaException as refused:
            # The group has gone on without it.
            if not refused.args[0].txn_requires_abort():
                raise
            self.sender.abort_transaction(WAIT_S)
        else:
            self.sender.commit_transaction(WAIT_S)


@pytest.mark.timeout(3 * LONG_S)
def test_tx09_three_members_transform_over_rebalances(broker: ServedBroker) -> None:
    """They come one after the other, and one goes; each record is transformed once."""
    create_topics(broker, 1, partitions=6)
    given: list[str] = []
    members: list[Member] = []

    def give() -> None:
        values = [str(len(given) + number) for number in range(60)]
        produced(broker, "in", values)
        given.extend(values)

    def shares_are_equal() -> bool:
        return stepped(members) and {len(each.reader.assignment()) for each in members} == {6 // len(members)}

    for name in ("one", "two", "three"):
        members.append(Member(broker, name))
        give()
        wait_for(shares_are_equal, WAIT_S, f"the group with {name} does not rebalance")
    assert members[0].assignments >= 3, "each that came has made the group rebalance"
    give()
    members.pop(0).close()
    wait_for(lambda: stepped(members) and committed(broker) == len(given), LONG_S, "the members do not get on")
    for member in members:
        member.close()

    assert sorted(read(broker, len(given))) == sorted(f"of {value}" for value in given)


def stepped(members: list[Member]) -> bool:
    for member in members:
        member.step(5)
    return True


@pytest.mark.parametrize("leaves", [False, True], ids=["ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"])
def test_tx09_zombie_commits_no_offsets(broker: ServedBroker, *, leaves: bool) -> None:
    """It believes to be the member that it was when it read. Its transaction is aborted, and nothing of it is seen."""
    create_topics(broker, 1)
    produced(broker, "in", INPUT)
    zombie = Transformer(broker, "zombie")
    messages = consumed(zombie.reader, BATCH)
    positions, membership = zombie.reader.position(zombie.reader.assignment()), zombie.reader.consumer_group_metadata()
    zombie.sender.begin_transaction()
    for message in messages:
        zombie.sender.produce("out", value=b"twice " + (message.value() or b""))
    assert zombie.sender.flush(WAIT_S) == 0
    if leaves:
        zombie.close()
    else:
        rebalanced(broker, zombie.reader)

    with pytest.raises(KafkaException) as refused:
        zombie.sender.send_offsets_to_transaction(positions, membership, WAIT_S)

    error = refused.value.args[0]
    expected = KafkaError.UNKNOWN_MEMBER_ID if leaves else KafkaError.ILLEGAL_GENERATION
    assert (error.code(), error.txn_requires_abort(), error.fatal()) == (expected, True, False)
    zombie.sender.abort_transaction(WAIT_S)
    if not leaves:
        zombie.close()
    assert committed(broker) == 0
    successor = Transformer(broker, "successor")
    successor.transform(len(INPUT), commit=True)
    successor.close()
    assert sorted(read(broker, len(INPUT))) == sorted(f"of {value}" for value in INPUT)
    assert committed(broker) == len(INPUT)


def rebalanced(broker: Any, reader: Consumer) -> None:
    """Another member comes, and goes."""
    other = consumer(broker, GROUP)
    other.subscribe(["in"])

    def has_joined() -> bool:
        reader.poll(0.05)
        other.poll(0.05)
        return bool(other.assignment())

    wait_for(has_joined, WAIT_S, "no other member is assigned anything")
    other.close()


async def test_offsets_in_transactions_of_aiokafka(broker: ServedBroker) -> None:
    await aio_produce(broker, "in", [value.encode() for value in INPUT])
    partition = AioTopicPartition("in", 0)
    sender = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="one")
    await sender.start()
    for commits, expected in ((True, b"0"), (False, b"4"), (True, b"4")):
        async with aio_consumer(broker, "in", group_id=GROUP, isolation_level="read_committed") as reader:
            messages = await take(reader, BATCH)
        assert messages[0].value == expected
        await sender.begin_transaction()
        for message in messages:
            await sender.send("out", b"of " + message.value)
        await sender.send_offsets_to_transaction({partition: messages[-1].offset + 1}, GROUP)
        await (sender.commit_transaction() if commits else sender.abort_transaction())
    await sender.stop()

    async with aio_consumer(broker, "out", isolation_level="read_committed") as reader:
        assert [message.value for message in await take(reader, 2 * BATCH)] == [
            b"of %d" % number for number in range(2 * BATCH)
        ]
    async with aio_consumer(broker, "in", group_id=GROUP) as reader:
        assert await reader.committed(partition) == 2 * BATCH

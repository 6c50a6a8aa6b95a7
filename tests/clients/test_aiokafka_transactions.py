"""What the transactional suites of aiokafka and kafka-python ask of a broker, in our own words.

One broker serves all tests of this file, and then three do; each test has topics and ids of its own."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from itertools import chain
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import OutOfOrderSequenceNumber, ProducerFenced
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition
from kafka.admin import AbortTransactionSpec, KafkaAdminClient, TransactionState
from kafka.structs import OffsetAndMetadata

from tests.cli.hanging import write_hanging
from tests.clients.test_aiokafka import take
from tests.clients.test_confluent_kafka import WAIT_S
from tests.served import ServedBroker

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "transaction.partition.verification.enable": "false"}


@pytest.fixture(scope="module", params=[1, 3], ids=["one broker", "three brokers"])
def served(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[ServedBroker]:
    directory = tmp_path_factory.mktemp("served") / "data"
    with ServedBroker(directory, SETTINGS, arguments=["--brokers", str(request.param)]) as served:
        yield served


@pytest.fixture
def topic(served: ServedBroker) -> str:
    """A topic of two partitions; its name is also that of ids and groups."""
    name, replicas = uuid.uuid4().hex, served.bootstrap.count(",") + 1
    admin = AdminClient({"bootstrap.servers": served.bootstrap})
    admin.create_topics([NewTopic(name, 2, replicas)])[name].result(WAIT_S)
    return name


@contextlib.asynccontextmanager
async def transactional(served: ServedBroker, topic: str) -> AsyncIterator[Any]:
    async with AIOKafkaProducer(bootstrap_servers=served.bootstrap, transactional_id=topic) as sender:
        yield sender


def reading(served: ServedBroker, *topics: str, level: str = "read_committed", **settings: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=served.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=level,
        **settings,
    )


async def stable_offset(reader: Any, place: TopicPartition, expected: int) -> int:
    """The last stable offset that the reader knows, when it is the expected one or the time is over."""
    deadline = time.monotonic() + WAIT_S
    while reader.last_stable_offset(place) != expected and time.monotonic() < deadline:
        await reader.getmany(place, timeout_ms=50)
    return reader.last_stable_offset(place)


@pytest.mark.parametrize("commits", [False, True])
async def test_open_transaction_holds_back_what_follows(served: ServedBroker, topic: str, commits: bool) -> None:
    """TX05: with the offsets that the consumer sees."""
    place = TopicPartition(topic, 0)
    async with (
        transactional(served, topic) as sender,
        AIOKafkaProducer(bootstrap_servers=served.bootstrap) as plain,
        reading(served, topic) as reader,
    ):
        await sender.begin_transaction()
        await sender.send_and_wait(topic, b"inside", partition=0)
        await plain.send_and_wait(topic, b"plain", partition=0)
        while reader.highwater(place) != 2:
            assert not await reader.getmany(place, timeout_ms=50)
        assert reader.last_stable_offset(place) == 0

        await (sender.commit_transaction() if commits else sender.abort_transaction())

        expected = [b"inside", b"plain"] if commits else [b"plain"]
        assert [message.value for message in await take(reader, len(expected))] == expected
        assert await stable_offset(reader, place, 3) == 3
        assert reader.highwater(place) == 3


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
async def test_position_passes_a_marker_that_ends_the_log(served: ServedBroker, topic: str, level: str) -> None:
    """TX02: and the consumer goes on with what is written then."""
    place = TopicPartition(topic, 0)
    async with transactional(served, topic) as sender, reading(served, topic, level=level) as reader:
        async with sender.transaction():
            await sender.send_and_wait(topic, b"first", partition=0)
        reader.seek(place, 1)
        while await reader.position(place) != 2:
            assert not await reader.getmany(place, timeout_ms=50)
        async with sender.transaction():
            await sender.send_and_wait(topic, b"second", partition=0)

        message = await asyncio.wait_for(reader.getone(place), WAIT_S)

    assert (message.value, message.offset) == (b"second", 2)


async def test_transactions_of_nothing_leave_nothing(served: ServedBroker, topic: str) -> None:
    async with transactional(served, topic) as sender:
        await sender.begin_transaction()
        await sender.commit_transaction()
        await sender.begin_transaction()
        await sender.abort_transaction()

    async with reading(served, topic) as reader:
        assert set((await reader.end_offsets([TopicPartition(topic, part) for part in (0, 1)])).values()) == {0}


async def test_older_producer_is_fenced_and_the_newer_keeps_its_id(served: ServedBroker, topic: str) -> None:
    """TX06."""
    async with transactional(served, topic) as old, transactional(served, topic) as new:
        assert new._txn_manager.producer_id == old._txn_manager.producer_id
        async with new.transaction():
            await new.send_and_wait(topic, b"newer")

        with pytest.raises(ProducerFenced):
            async with old.transaction():
                await old.send_and_wait(topic, b"fenced")


async def test_missing_sequence_in_a_transaction_is_out_of_order(served: ServedBroker, topic: str) -> None:
    async with transactional(served, topic) as sender:

        async def write_with_a_gap() -> None:
            async with sender.transaction():
                await sender.send_and_wait(topic, b"first", partition=0)
                sender._txn_manager.increment_sequence_number(TopicPartition(topic, 0), 1)
                await sender.send_and_wait(topic, b"third", partition=0)

        with pytest.raises(OutOfOrderSequenceNumber):
            await write_with_a_gap()

    async with reading(served, topic) as reader:
        assert not await reader.getmany(timeout_ms=300)


async def test_cancelled_end_of_a_transaction_ends_it_all_the_same(served: ServedBroker, topic: str) -> None:
    async with transactional(served, topic) as sender:
        for end in (sender.commit_transaction, sender.abort_transaction):
            await sender.begin_transaction()
            await sender.send_and_wait(topic, end.__name__.encode(), partition=0)
            ending = asyncio.ensure_future(end())
            await asyncio.sleep(0)
            ending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ending
            async with asyncio.timeout(WAIT_S):
                await sender._txn_manager.wait_for_transaction_end()
        async with sender.transaction():
            await sender.send_and_wait(topic, b"last", partition=0)

    async with reading(served, topic) as reader:
        values = [message.value for message in await take(reader, 2)]
    assert values == [b"commit_transaction", b"last"]


async def committed_up_to(reader: AIOKafkaConsumer, place: TopicPartition, offset: int) -> None:
    while await reader.committed(place) != offset:  # noqa: ASYNC110 - only asking again shows it
        await asyncio.sleep(0.05)


async def test_aborted_offsets_leave_the_committed_ones(served: ServedBroker, topic: str) -> None:
    """TX11: what was aborted is read again from the committed offsets."""
    target, place = topic + "-out", TopicPartition(topic, 0)
    async with AIOKafkaProducer(bootstrap_servers=served.bootstrap) as plain:
        for number in range(60):
            await plain.send(topic, b"%d" % number, partition=0)
    async with transactional(served, topic) as sender, reading(served, topic, group_id=topic) as reader:
        await reader.commit({place: 0})

        async def copy(count: int) -> int:
            messages = await take(reader, count)
            for message in messages:
                await sender.send(target, b"copy of " + message.value)
            await sender.send_offsets_to_transaction({place: messages[-1].offset + 1}, topic)
            return len(messages)

        await sender.begin_transaction()
        await copy(20)
        await sender.abort_transaction()
        assert await reader.committed(place) == 0
        reader.seek(place, 0)
        copied = 0
        while copied < 60:
            async with sender.transaction():
                copied += await copy(20)
        # aiokafka does not ask for stable offsets: until the last marker is written, it gets those before.
        async with asyncio.timeout(WAIT_S):
            await committed_up_to(reader, place, 60)

    async with reading(served, target) as reader:
        assert [message.value for message in await take(reader, 60)] == [b"copy of %d" % i for i in range(60)]


def test_offsets_keep_their_metadata_and_leader_epoch(served: ServedBroker, topic: str) -> None:
    """kafka-python: offsets of an aborted transaction are not among those of the group."""
    first, second = (PythonTopicPartition(topic, part) for part in (0, 1))
    sender = KafkaProducer(bootstrap_servers=served.bootstrap, transactional_id=topic)
    sender.init_transactions()
    sender.begin_transaction()
    sender.send(topic, partition=0, value=b"x").get(WAIT_S)
    sender.send_offsets_to_transaction({first: OffsetAndMetadata(0, "noted", 0)}, topic)
    sender.commit_transaction()
    sender.begin_transaction()
    sender.send_offsets_to_transaction({second: OffsetAndMetadata(1, "aborted", 1)}, topic)
    sender.abort_transaction()
    sender.close()

    asker = KafkaAdminClient(bootstrap_servers=served.bootstrap)
    assert asker.list_group_offsets(topic)[topic] == {first: OffsetAndMetadata(0, "noted", 0)}
    asker.close()


def test_several_records_of_an_aborted_transaction_are_passed(served: ServedBroker, topic: str) -> None:
    sender = KafkaProducer(bootstrap_servers=served.bootstrap, transactional_id=topic)
    sender.init_transactions()
    for values, end in (((b"1", b"2"), sender.abort_transaction), ((b"3", b"4"), sender.commit_transaction)):
        sender.begin_transaction()
        for value in values:
            sender.send(topic, partition=0, value=value).get(WAIT_S)
        end()
    sender.close()

    reader = KafkaConsumer(
        bootstrap_servers=served.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        group_id=None,
        consumer_timeout_ms=WAIT_S * 1000,
    )
    reader.assign([PythonTopicPartition(topic, 0)])
    assert [next(reader).value for _ in range(2)] == [b"3", b"4"]
    reader.close()


def test_admin_of_kafka_python_describes_transactions(served: ServedBroker, topic: str) -> None:
    """TX30."""
    place = PythonTopicPartition(topic, 0)
    sender = KafkaProducer(bootstrap_servers=served.bootstrap, transactional_id=topic)
    sender.init_transactions()
    sender.begin_transaction()
    sender.send(topic, partition=0, value=b"x").get(WAIT_S)
    asker = KafkaAdminClient(bootstrap_servers=served.bootstrap)

    [listed] = chain(*asker.list_transactions(transactional_id_pattern=topic).values())
    described = asker.describe_transactions([topic])[topic]
    [producer] = asker.describe_producers([place])[place].active_producers
    long_ones = chain(*asker.list_transactions(duration_filter_ms=3600_000).values())

    assert (listed.transactional_id, listed.state) == (topic, TransactionState.ONGOING)
    assert (described.producer_id, described.topic_partitions) == (listed.producer_id, {place})
    assert (producer.producer_id, producer.current_transaction_start_offset) == (listed.producer_id, 0)
    assert (producer.producer_epoch, producer.last_sequence) == (described.producer_epoch, 0)
    assert topic not in {each.transactional_id for each in long_ones}
    assert asker.find_hanging_transactions() == []
    sender.abort_transaction()
    sender.close()
    asker.close()


def test_admin_of_kafka_python_ends_a_hanging_transaction(served: ServedBroker, topic: str) -> None:
    """TX31."""
    place = PythonTopicPartition(topic, 0)
    producer_id = write_hanging(served.bootstrap, topic, b"x", ago_s=3600)
    asker = KafkaAdminClient(bootstrap_servers=served.bootstrap)
    [hanging] = asker.describe_producers([place])[place].active_producers
    assert (hanging.producer_id, hanging.current_transaction_start_offset) == (producer_id, 0)

    asker.abort_transaction(AbortTransactionSpec(place, producer_id, hanging.producer_epoch))

    [ended] = asker.describe_producers([place])[place].active_producers
    assert (ended.producer_id, ended.current_transaction_start_offset) == (producer_id, -1)
    asker.close()

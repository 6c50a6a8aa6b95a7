"""What the transactional suites of librdkafka and confluent-kafka ask of a broker, in our own words.

One cluster of three serves all tests of this file; each test has topics and ids of its own."""

import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient
from kafka.errors import CoordinatorNotAvailableError

from tests.clients.test_confluent_kafka import WAIT_S, consumed, consumer, producer
from tests.served import ServedBroker
from tests.waiting import wait_for

QUICK = {"group.initial.rebalance.delay.ms": "0"}
TO_THE_END = {"enable_partition_eof": True, "fetch_wait_max_ms": 10}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    directory = tmp_path_factory.mktemp("served") / "data"
    with ServedBroker(directory, QUICK, arguments=["--brokers", "3"]) as served:
        yield served


@pytest.fixture
def topic(cluster: ServedBroker) -> str:
    """A topic of two partitions; its name is also the start of ids and groups."""
    return created(cluster, partitions=2)


def created(cluster: ServedBroker, partitions: int) -> str:
    name, replicas = uuid.uuid4().hex, cluster.bootstrap.count(",") + 1
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(WAIT_S)
    return name


def delete_records(cluster: ServedBroker, until: TopicPartition) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_records([until])[until].result(WAIT_S)


def transactional(cluster: ServedBroker, transactional_id: str, **settings: object) -> Producer:
    sender = producer(cluster, transactional_id=transactional_id, **settings)
    sender.init_transactions(WAIT_S)
    return sender


def until_end(reader: Consumer, place: TopicPartition) -> list[bytes]:
    """The values of a partition up to where the reader may read."""
    reader.assign([place])
    values = []
    while (message := reader.poll(WAIT_S)) is not None:
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            return values
        values.append(message.value() or b"")
    raise AssertionError(f"no end of {place} came after {values!r}")


def values(cluster: Any, topic: str, partition: int = 0, level: str = "read_committed") -> list[bytes]:
    reader = consumer(cluster, f"{topic} {level}", isolation_level=level, **TO_THE_END)
    try:
        return until_end(reader, TopicPartition(topic, partition, 0))
    finally:
        reader.close()


def read(cluster: Any, topic: str, partition: int, level: str = "read_committed") -> str:
    return str(b"".join(values(cluster, topic, partition, level)), "utf-8")


def described(cluster: Any, name: str = "tx") -> Any:
    """Asked for again where a broker has not heard of the coordinator yet: kafka-python does not do that itself."""
    asker = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    found: list[Any] = []

    def is_described() -> bool:
        with suppress(CoordinatorNotAvailableError):
            found.append(asker.describe_transactions([name])[name])
        return bool(found)

    try:
        wait_for(is_described, WAIT_S, f"no broker knows the coordinator of {name}")
    finally:
        asker.close()
    return found[0]


def wait_until_over(cluster: ServedBroker, name: str) -> None:
    """Until the markers of its last transaction are written."""
    over = ("EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT")
    wait_for(lambda: described(cluster, name).state.name in over, WAIT_S, f"a transaction of {name} is not over")


def stepped(cluster: ServedBroker, topic: str, steps: list[str]) -> dict[str, Producer]:
    """Each step is `PRODUCER PARTITION VALUES END`: one record for each letter, then perhaps an end of the transaction.

    Producer `-` is a plain one. What ends `later` goes on; `quickly` says that nothing is flushed before the end. The
    transaction before it is over then: where AddPartitionsToTxn is answered CONCURRENT_TRANSACTIONS and the client
    aborts before it asks again, its EndTxn meets a committed transaction, which Kafka refuses too (§13.5.1)."""
    senders: dict[str, Producer] = {}
    within: set[str] = set()
    for step in steps:
        name, partition, values, *ending = step.split()
        if name not in senders:
            plain = name == "-"
            senders[name] = producer(cluster) if plain else transactional(cluster, f"{topic}-{name}", linger_ms=5)
        sender = senders[name]
        if name != "-" and name not in within:
            if "quickly" in ending:
                wait_until_over(cluster, f"{topic}-{name}")
            sender.begin_transaction()
            within.add(name)
        for value in values:
            sender.produce(topic, value, partition=int(partition))
        if "quickly" not in ending:
            assert sender.flush(WAIT_S) == 0
        if "commit" in ending or "abort" in ending:
            (sender.commit_transaction if "commit" in ending else sender.abort_transaction)(WAIT_S)
            within.remove(name)
    return senders


# What readers of both levels see in partition 0, and then in partition 1.
MIXTURES = {
    "aborted after committed": (["A 0 aaaaa commit", "A 0 bbbbb abort"], ["aaaaa", ""], ["aaaaabbbbb", ""]),
    "committed after aborted": (["A 0 aaaaa abort", "A 0 bbbbb commit"], ["bbbbb", ""], ["aaaaabbbbb", ""]),
    "plain first": (["- 0 ppp", "A 0 aaa commit", "A 0 bbb abort"], ["pppaaa", ""], ["pppaaabbb", ""]),
    "plain between": (["A 0 aaa abort", "- 0 ppp", "A 0 bbb commit"], ["pppbbb", ""], ["aaapppbbb", ""]),
    "plain last": (["A 0 aaa commit", "A 0 bbb abort", "- 0 ppp"], ["aaappp", ""], ["aaabbbppp", ""]),
    "one record in each": (
        [*(f"A 0 {value} {('abort', 'commit')[value in 'bdfhj']}" for value in "abcdefghij"), "- 0 pq"],
        ["bdfhjpq", ""],
        ["abcdefghijpq", ""],
    ),
    "two partitions": (["A 0 aaa later", "A 1 bbb later", "A 0 ccc commit"], ["aaaccc", "bbb"], ["aaaccc", "bbb"]),
    "two partitions aborted": (
        ["A 0 a commit", "A 0 bbb later", "A 1 ccc later", "A 0 ddd abort", "- 0 p", "A 1 e commit"],
        ["ap", "e"],
        ["abbbdddp", "ccce"],
    ),
    "two at once, first commits": (
        ["- 0 p", "A 0 aaa later", "B 0 bbb later", "A 0 ccc commit", "B 0 ddd abort"],
        ["paaaccc", ""],
        ["paaabbbcccddd", ""],
    ),
    "two at once, second commits": (
        ["- 0 p", "A 0 aaa later", "B 0 bbb later", "A 0 ccc abort", "B 0 ddd commit"],
        ["pbbbddd", ""],
        ["paaabbbcccddd", ""],
    ),
    "two at once, both commit": (
        ["- 0 p", "A 0 aaa later", "B 0 bbb later", "A 0 ccc commit", "B 0 ddd commit"],
        ["paaabbbcccddd", ""],
        ["paaabbbcccddd", ""],
    ),
    "two at once, none commits": (
        ["- 0 p", "A 0 aaa later", "B 0 bbb later", "A 0 ccc abort", "B 0 ddd abort"],
        ["p", ""],
        ["paaabbbcccddd", ""],
    ),
    "left open": (["- 0 p", "A 0 aaa later", "- 0 qq"], ["p", ""], ["paaaqq", ""]),
}


@pytest.mark.parametrize("mixture", MIXTURES)
def test_readers_of_both_levels_see_what_they_should(cluster: ServedBroker, topic: str, mixture: str) -> None:
    """TX03, TX05 and TX36 among them."""
    steps, committed, uncommitted = MIXTURES[mixture]

    senders = stepped(cluster, topic, steps)

    assert [read(cluster, topic, partition) for partition in (0, 1)] == committed
    assert [read(cluster, topic, partition, "read_uncommitted") for partition in (0, 1)] == uncommitted
    del senders


def test_transactions_without_a_flush_follow_at_once(cluster: ServedBroker, topic: str) -> None:
    """TX26. What is aborted before it was sent never reaches the broker, and does not hinder what follows."""
    ends = [f"A 0 {value} {('abort', 'commit')[value in 'bdfhj']} quickly" for value in "abcdefghij"]

    stepped(cluster, topic, [*ends, "- 0 pq"])

    assert read(cluster, topic, 0) == "bdfhjpq"


def test_watermarks_are_those_of_the_isolation_level(cluster: ServedBroker, topic: str) -> None:
    senders = stepped(cluster, topic, ["- 0 pp", "A 0 aaa later"])
    place = TopicPartition(topic, 0)
    ends = {}
    for level in ("read_committed", "read_uncommitted"):
        reader = consumer(cluster, f"{topic} {level}", isolation_level=level)
        ends[level] = reader.get_watermark_offsets(place, WAIT_S)
        reader.close()

    assert ends == {"read_committed": (0, 2), "read_uncommitted": (0, 5)}
    senders["A"].abort_transaction(WAIT_S)


def test_transaction_timeout_out_of_bounds_is_fatal(cluster: ServedBroker, topic: str) -> None:
    sender = producer(cluster, transactional_id=topic, transaction_timeout_ms=2147483647)

    with pytest.raises(KafkaException) as refused:
        sender.init_transactions(WAIT_S)

    error = refused.value.args[0]
    assert (error.code(), error.fatal()) == (KafkaError.INVALID_TRANSACTION_TIMEOUT, True)


def test_init_transactions_that_timed_out_can_be_repeated(cluster: ServedBroker, topic: str) -> None:
    sender = producer(cluster, transactional_id=topic)
    with pytest.raises(KafkaException) as refused:
        sender.init_transactions(0.001)
    assert (refused.value.args[0].code(), refused.value.args[0].retriable()) == (KafkaError._TIMED_OUT, True)

    sender.init_transactions(WAIT_S)
    sender.begin_transaction()
    sender.produce(topic, "a", partition=0)
    sender.commit_transaction(WAIT_S)

    assert read(cluster, topic, 0) == "a"


@pytest.mark.parametrize("produces", [False, True])
def test_fenced_producer_fails_for_good(cluster: ServedBroker, topic: str, produces: bool) -> None:
    """TX06: whether it produces after that or not."""
    old = stepped(cluster, topic, ["A 0 aaa later"])["A"]
    new = transactional(cluster, f"{topic}-A")
    if produces:
        old.produce(topic, "b", partition=0)

    with pytest.raises(KafkaException) as refused:
        old.commit_transaction(WAIT_S)

    error = refused.value.args[0]
    assert (error.code(), error.fatal(), error.retriable()) == (KafkaError._FENCED, True, False)
    assert not error.txn_requires_abort()
    assert read(cluster, topic, 0) == ""
    del new


def test_transaction_goes_on_when_former_records_are_deleted(cluster: ServedBroker, topic: str) -> None:
    """The partition may have forgotten the producer by then; that is no error to the client."""
    sender = stepped(cluster, topic, ["A 0 aaaaaa commit"])["A"]
    sender.begin_transaction()
    delete_records(cluster, TopicPartition(topic, 0, 6))

    for value in "bbbb":
        sender.produce(topic, value, partition=0)
    sender.commit_transaction(WAIT_S)
    sender.begin_transaction()
    sender.produce(topic, "c", partition=0)
    sender.commit_transaction(WAIT_S)

    assert read(cluster, topic, 0) == "bbbbc"


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("deleted", [2, 3, 5], ids=["half a batch", "a batch", "all that is written"])
def test_rest_is_read_when_an_open_beginning_is_deleted(
    cluster: ServedBroker, topic: str, deleted: int, commits: bool
) -> None:
    """TX29."""
    sender = stepped(cluster, topic, ["- 0 p", "A 0 aa later", "A 0 bb later"])["A"]
    delete_records(cluster, TopicPartition(topic, 0, deleted))
    assert read(cluster, topic, 0) == ""
    assert read(cluster, topic, 0, "read_uncommitted") == "paabb"[deleted:]

    sender.produce(topic, "c", partition=0)
    (sender.commit_transaction if commits else sender.abort_transaction)(WAIT_S)
    stepped(cluster, topic, ["- 0 q"])

    assert read(cluster, topic, 0) == ("paabbc"[deleted:] if commits else "") + "q"


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("sends_offsets", [False, True])
def test_transaction_without_records_ends(
    cluster: ServedBroker, topic: str, sends_offsets: bool, commits: bool
) -> None:
    """TX11: offsets alone make a transaction too."""
    reader = consumer(cluster, topic, fetch_wait_max_ms=10)
    reader.assign([TopicPartition(topic, 0, 0)])
    sender = stepped(cluster, topic, ["- 0 aaaa"]) and transactional(cluster, topic)
    sender.begin_transaction()

    if sends_offsets:
        consumed(reader, 4)
        positions = reader.position(reader.assignment())
        sender.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), WAIT_S)
    (sender.commit_transaction if commits else sender.abort_transaction)(WAIT_S)

    committed = reader.committed([TopicPartition(topic, 0)], WAIT_S)[0].offset
    assert (committed == 4) == (commits and sends_offsets)
    assert committed in (4, -1001)
    reader.close()


def test_offsets_show_to_who_asks_after_the_next_init(cluster: ServedBroker, topic: str) -> None:
    """TX10: the next producer of the id has them all behind it."""
    reader = consumer(cluster, topic, fetch_wait_max_ms=10)
    reader.assign([TopicPartition(topic, 0, 0)])
    stepped(cluster, topic, ["- 0 aaaa"])
    consumed(reader, 4)
    first = transactional(cluster, topic)
    first.begin_transaction()
    for _ in range(100):
        first.produce(topic, "b", partition=1)
    positions = reader.position(reader.assignment())
    first.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), WAIT_S)
    first.commit_transaction(WAIT_S)

    transactional(cluster, topic)

    assert reader.committed([TopicPartition(topic, 0)], WAIT_S)[0].offset == 4
    reader.close()


def test_stream_job_with_aborts_copies_what_it_committed(cluster: ServedBroker) -> None:
    """TX09: the consumer goes on from its position after an abort, or begins again from the committed offsets."""
    source, target = created(cluster, partitions=4), created(cluster, partitions=4)
    feeder = transactional(cluster, source)
    feeder.begin_transaction()
    for number in range(200):
        feeder.produce(source, str(number))
    feeder.commit_transaction(WAIT_S)

    def begun() -> Consumer:
        reader = consumer(cluster, source, isolation_level="read_committed")
        reader.subscribe([source])
        return reader

    reader, sender, expected = begun(), transactional(cluster, target), []
    for turn in range(10):
        messages = consumed(reader, 10 * (1 + turn % 3))
        aborts = turn % 3 == 0
        sender.begin_transaction()
        for message in messages:
            sender.produce(target, message.value())
        if not aborts:
            expected += [message.value() for message in messages]
        positions = reader.position(reader.assignment())
        sender.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), WAIT_S)
        (sender.abort_transaction if aborts else sender.commit_transaction)(WAIT_S)
        if turn == 3:
            reader.close()
            reader = begun()
    reader.close()

    copies = consumer(cluster, target, isolation_level="read_committed", **TO_THE_END)
    found = [until_end(copies, TopicPartition(target, number, 0)) for number in range(4)]
    copies.close()
    assert sorted(value for values in found for value in values) == sorted(expected)

"""Transactions with thousands of participants, of mixed clients, and read from followers."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from tests.clients.go_programs import built
from tests.clients.stepped import GO, SteppedClient, go_client, java_client
from tests.clients.test_aiokafka import consumer as aio_consumer
from tests.clients.test_aiokafka import take
from tests.clients.test_confluent_kafka import WAIT_S, consumed, consumer, create_topic, produced, producer
from tests.clients.test_librdkafka_transactions import (
    TO_THE_END,
    delete_records,
    described,
    transactional,
    until_end,
    wait_until_over,
)
from tests.cluster_processes import ETCD_MISSING, ClusterProcesses, etcd_is_installed
from tests.served import ServedBroker
from tests.waiting import wait_for

PARTICIPANTS = 3_000
LONG_S = 90
# A topic and its partitions are some 4 bytes each in the value, written at most twice with all of them.
VALUE_BYTES_MAX = 6 * PARTICIPANTS


@pytest.mark.timeout(4 * LONG_S)
def test_tx34_transaction_of_thousands_of_partitions_commits(
    broker: ServedBroker, record_property: Callable[[str, object], None]
) -> None:
    """The size of the largest value and the time of the markers are properties of the test's report."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", PARTICIPANTS, 1)], request_timeout=LONG_S)["t"].result(LONG_S)
    sender = transactional(broker, "many")
    sender.begin_transaction()
    for partition in range(PARTICIPANTS):
        sender.produce("t", str(partition), partition=partition)
    assert sender.flush(LONG_S) == 0
    sender.commit_transaction(LONG_S)
    decided = time.monotonic()
    wait_until_over(broker, "many")
    record_property("marker_phase_s", round(time.monotonic() - decided, 2))

    reader = consumer(broker, "readers", isolation_level="read_committed")
    reader.assign([TopicPartition("t", partition, 0) for partition in range(PARTICIPANTS)])
    values = {message.value() for message in consumed(reader, PARTICIPANTS)}
    reader.close()
    # A stop would sync thousands of files.
    broker.kill()

    assert values == {str(partition).encode() for partition in range(PARTICIPANTS)}
    stored = b"".join(path.read_bytes() for path in broker.data_dir.glob("__transaction_state-*/*.log"))
    largest = max(len(batch) for batch in stored.split(b"\x00\x04many"))
    record_property("value_bytes", largest)
    assert PARTICIPANTS < largest < VALUE_BYTES_MAX


@pytest.fixture(scope="module")
def go_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(GO, tmp_path_factory.mktemp("go"))


@pytest.fixture(params=["python", pytest.param("java and go", marks=pytest.mark.java)])
def others(broker: ServedBroker, request: pytest.FixtureRequest) -> Iterator[list[SteppedClient]]:
    """Clients of one topic that are not Python's; skips where there is no Java or no Go."""
    create_topic(broker, "t")
    with ExitStack() as stack:
        found = []
        if request.param == "java and go":
            of_go = go_client(request.getfixturevalue("go_programs"), broker.bootstrap, "t", "franz-go")
            found = [java_client(broker.bootstrap, "t", "java"), of_go]
        yield [stack.enter_context(each) for each in found]


async def read_by_all(broker: ServedBroker, others: list[SteppedClient], count: int) -> list[list[bytes]]:
    """The committed values of the topic, as a reader of each kind sees them from its beginning."""
    found = []
    reader = consumer(broker, "readers", isolation_level="read_committed", **TO_THE_END)
    found.append(until_end(reader, TopicPartition("t", 0, OFFSET_BEGINNING)))
    reader.close()
    async with aio_consumer(broker, "t", isolation_level="read_committed") as aio_reader:
        found.append([message.value for message in await take(aio_reader, count)])
    python_reader = KafkaConsumer(
        "t", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    found.append([next(python_reader).value for _ in range(count)])
    python_reader.close()
    return found + [each.read(count) for each in others]


@pytest.mark.timeout(2 * LONG_S)
async def test_tx35_each_client_reads_what_the_others_commit(broker: ServedBroker, others: list[SteppedClient]) -> None:
    plain = producer(broker)
    of_librdkafka = transactional(broker, "confluent-kafka")
    of_kafka_python: Any = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="kafka-python")
    of_kafka_python.init_transactions()
    of_aiokafka = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="aiokafka")
    await of_aiokafka.start()
    # All are open together; each aborts what it has written second.
    for turn, commits in enumerate((True, False, True)):
        of_librdkafka.begin_transaction()
        of_kafka_python.begin_transaction()
        await of_aiokafka.begin_transaction()
        of_librdkafka.produce("t", f"c{turn}")
        assert of_librdkafka.flush(WAIT_S) == 0
        of_kafka_python.send("t", f"k{turn}".encode()).get(WAIT_S)
        await of_aiokafka.send_and_wait("t", f"a{turn}".encode())
        for index, other in enumerate(others):
            other.write(f"o{index}-{turn}")
        plain.produce("t", f"p{turn}")
        assert plain.flush(WAIT_S) == 0
        await (of_aiokafka.commit_transaction() if commits else of_aiokafka.abort_transaction())
        for other in others:
            other.end(commit=commits)
        (of_librdkafka.commit_transaction if commits else of_librdkafka.abort_transaction)(WAIT_S)
        (of_kafka_python.commit_transaction if commits else of_kafka_python.abort_transaction)()
    await of_aiokafka.stop()
    of_kafka_python.close()
    of_others = [[f"o{index}-{turn}".encode() for index in range(len(others))] for turn in range(3)]
    first, third = ([b"c0", b"k0", b"a0", *of_others[0], b"p0"], [b"c2", b"k2", b"a2", *of_others[2], b"p2"])
    expected = [*first, b"p1", *third]

    seen = await read_by_all(broker, others, len(expected))

    assert seen == [expected] * (3 + len(others))
    # Those of `transaction.version` 2 have an epoch for each transaction.
    ids = ("confluent-kafka", "kafka-python", "aiokafka", *("java", "franz-go")[: len(others)])
    assert [described(broker, name).producer_epoch for name in ids] == [0, 0, 0, *[3 for _ in others]]


@pytest.mark.timeout(2 * LONG_S)
@pytest.mark.parametrize("commits", [True, False])
async def test_tx29_all_read_the_rest_of_what_was_deleted(
    broker: ServedBroker, others: list[SteppedClient], commits: bool
) -> None:
    """Half of the first batch goes while its transaction is open."""
    sender = transactional(broker, "tx")
    sender.begin_transaction()
    for values in ("ab", "cd"):
        for value in values:
            sender.produce("t", value, partition=0)
        assert sender.flush(WAIT_S) == 0
    delete_records(broker, TopicPartition("t", 0, 1))
    sender.produce("t", "e", partition=0)
    (sender.commit_transaction if commits else sender.abort_transaction)(WAIT_S)
    produced(broker, "t", ["f"])

    expected = [b"b", b"c", b"d", b"e", b"f"] if commits else [b"f"]
    assert await read_by_all(broker, others, len(expected)) == [expected] * (3 + len(others))


RACKS = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "auto.leader.rebalance.enable": "false",
}


@pytest.fixture
def racks(tmp_path: Path) -> Iterator[ClusterProcesses]:
    """Each broker is in a rack of its own."""
    cluster = ClusterProcesses(tmp_path, RACKS)
    for node_id, each in cluster.brokers.items():
        each.settings["broker.rack"] = f"rack-{node_id}"
    with cluster:
        yield cluster


def ended_in_turns(sender: Any, count: int) -> list[bytes]:
    """So many transactions of one record, every third aborted; the values of the others."""
    committed = []
    for number in range(count):
        sender.begin_transaction()
        sender.produce("t", str(number), partition=0)
        assert sender.flush(WAIT_S) == 0
        if number % 3 == 1:
            sender.abort_transaction(WAIT_S)
        else:
            sender.commit_transaction(WAIT_S)
            committed.append(str(number).encode())
    return committed


@pytest.mark.skipif(not etcd_is_installed(), reason=ETCD_MISSING)
def test_tx33_follower_shows_the_committed_records_of_its_leader(racks: ClusterProcesses) -> None:
    racks.create_topic("t", 1, 3)
    racks.wait_until_whole()
    sender: Any = transactional(racks, "tx")  # type: ignore[arg-type]
    expected = ended_in_turns(sender, 30)
    sender.begin_transaction()
    sender.produce("t", "open", partition=0)
    assert sender.flush(WAIT_S) == 0
    leader = next(node for node, each in racks.brokers.items() if each is racks.leader_of("t", 0))
    follower = next(node for node in racks.brokers if node != leader)
    read_from: set[int] = set()

    def note(statistics: str) -> None:
        partition = json.loads(statistics)["topics"].get("t", {}).get("partitions", {}).get("0", {})
        read_from.add(partition.get("broker", -1))

    reader = Consumer(
        {
            "bootstrap.servers": racks.bootstrap,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "client.rack": f"rack-{follower}",
            "statistics.interval.ms": 100,
            "stats_cb": note,
            "enable.partition.eof": True,
        }
    )
    place = TopicPartition("t", 0, 0)
    # The leader sends its reader away with the first answer.
    wait_for(lambda: until_end(reader, place) is not None and follower in read_from, WAIT_S, lambda: str(read_from))
    read_from.clear()
    seen = until_end(reader, place)
    wait_for(lambda: reader.poll(0.1) is None and bool(read_from), WAIT_S, "no statistics came")
    reader.close()

    assert seen == expected
    assert read_from == {follower}
    sender.abort_transaction(WAIT_S)

"""Transactions with thousands of participants, of mixed clients, and read from followers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from tests.clients.test_aiokafka import consumer as aio_consumer
from tests.clients.test_aiokafka import take
from tests.clients.test_confluent_kafka import WAIT_S, consumed, consumer, create_topic, producer
from tests.clients.test_librdkafka_transactions import TO_THE_END, transactional, until_end
from tests.cluster_processes import ETCD_MISSING, ClusterProcesses, etcd_is_installed
from tests.served import ServedBroker
from tests.waiting import wait_for

PARTICIPANTS = 2_000
LONG_S = 90
# A topic and its partitions are some 4 bytes each in the value, written at most twice with all of them.
VALUE_BYTES_MAX = 6 * PARTICIPANTS


@pytest.mark.timeout(4 * LONG_S)
def test_tx34_transaction_of_thousands_of_partitions_commits(broker: ServedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", PARTICIPANTS, 1)], request_timeout=LONG_S)["t"].result(LONG_S)
    sender = transactional(broker, "many")
    sender.begin_transaction()
    for partition in range(PARTICIPANTS):
        sender.produce("t", str(partition), partition=partition)
    assert sender.flush(LONG_S) == 0
    sender.commit_transaction(LONG_S)

    reader = consumer(broker, "readers", isolation_level="read_committed")
    reader.assign([TopicPartition("t", partition, 0) for partition in range(PARTICIPANTS)])
    values = {message.value() for message in consumed(reader, PARTICIPANTS)}
    reader.close()
    # A stop would sync thousands of files.
    broker.kill()

    assert values == {str(partition).encode() for partition in range(PARTICIPANTS)}
    stored = b"".join(path.read_bytes() for path in broker.data_dir.glob("__transaction_state-*/*.log"))
    largest = max(len(batch) for batch in stored.split(b"\x00\x04many"))
    assert PARTICIPANTS < largest < VALUE_BYTES_MAX


async def test_tx35_each_client_reads_what_the_others_commit(broker: ServedBroker) -> None:
    create_topic(broker, "t")
    plain = producer(broker)
    of_librdkafka = transactional(broker, "confluent-kafka")
    of_kafka_python: Any = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="kafka-python")
    of_kafka_python.init_transactions()
    of_aiokafka = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="aiokafka")
    await of_aiokafka.start()
    # All three are open together; each aborts what it has written second.
    for turn, commits in enumerate((True, False, True)):
        of_librdkafka.begin_transaction()
        of_kafka_python.begin_transaction()
        await of_aiokafka.begin_transaction()
        of_librdkafka.produce("t", f"c{turn}")
        assert of_librdkafka.flush(WAIT_S) == 0
        of_kafka_python.send("t", f"k{turn}".encode()).get(WAIT_S)
        await of_aiokafka.send_and_wait("t", f"a{turn}".encode())
        plain.produce("t", f"p{turn}")
        assert plain.flush(WAIT_S) == 0
        await (of_aiokafka.commit_transaction() if commits else of_aiokafka.abort_transaction())
        (of_librdkafka.commit_transaction if commits else of_librdkafka.abort_transaction)(WAIT_S)
        (of_kafka_python.commit_transaction if commits else of_kafka_python.abort_transaction)()
    await of_aiokafka.stop()
    of_kafka_python.close()
    expected = [b"c0", b"k0", b"a0", b"p0", b"p1", b"c2", b"k2", b"a2", b"p2"]

    reader = consumer(broker, "readers", isolation_level="read_committed", **TO_THE_END)
    assert until_end(reader, TopicPartition("t", 0, 0)) == expected
    reader.close()
    async with aio_consumer(broker, "t", isolation_level="read_committed") as aio_reader:
        assert [message.value for message in await take(aio_reader, len(expected))] == expected
    python_reader = KafkaConsumer(
        "t", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    assert [next(python_reader).value for _ in expected] == expected
    python_reader.close()


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

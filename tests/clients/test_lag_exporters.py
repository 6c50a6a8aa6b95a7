"""What kafka_exporter and Burrow read of groups and lag, asked as they ask, with their library (sarama)."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.clients.go_programs import built
from tests.conftest import QUICK_GROUPS
from tests.served import ServedBroker

SOURCES = Path(__file__).parent / "sarama"
WITHIN_S = 60


@contextmanager
def consuming(bootstrap: str, committed: int) -> Iterator[None]:
    """A member of the group `shop` that has all of `orders`, and has committed in its first partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "shop", "client.id": "till"})
    consumer.subscribe(["orders"])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition("orders", 0, committed)], asynchronous=False)
    try:
        yield
    finally:
        consumer.close()


@pytest.mark.parametrize("brokers", [1, 3])
def test_exporters_of_lag_find_groups_and_offsets(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, brokers: int
) -> None:
    program = built(SOURCES, tmp_path_factory.mktemp("go")) / "sarama"
    settings = QUICK_GROUPS | {"offsets.topic.num.partitions": "1", "num.partitions": "2"}
    with (
        ServedBroker(tmp_path / "data", settings, arguments=["--brokers", str(brokers)]) as broker,
        ExitStack() as stack,
    ):
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(10):
            producer.produce("orders", f"{number}", partition=0)
        assert producer.flush(20) == 0
        stack.enter_context(consuming(broker.bootstrap, committed=7))
        command = [str(program), broker.bootstrap.split(",")[0]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["brokers"] == brokers
    assert found["in_sync"]["orders"] == 2
    assert found["groups"] == {
        "shop": {"state": "Stable", "members": ["till"], "assigned": {"orders": 2}, "lag": {"orders:0": 3}}
    }
    assert found["stored"] == {"shop orders:0": 7}

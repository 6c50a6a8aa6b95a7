"""Testcontainers' Kafka classes, as released for Python and Java, start the image in place of Kafka's.

They change nothing but its name. Clients outside and inside of the containers' network produce and consume.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from testcontainers.community.kafka import KafkaContainer
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from benchmarks import apache_kafka
from benchmarks.figure import NotMeasured
from tests.docker.engine import TESTCONTAINERS, build_kafka_image
from tests.java_tools import program
from tests.locks import alone

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(600)]

JAVA = Path(__file__).parents[1] / "java"
READ_WITHIN_S = 30
CONTAINERS_WITHIN_S = 300


@pytest.fixture(scope="module")
def image() -> str:
    return build_kafka_image()


@pytest.fixture(autouse=True)
def without_ryuk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)


def produced(bootstrap: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("words", value)
    assert producer.flush(READ_WITHIN_S) == 0


def consumed(bootstrap: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["words"])
    try:
        return sorted(message.value().decode() for message in consumer.consume(count, READ_WITHIN_S))
    finally:
        consumer.close()


@contextmanager
def in_network(image: str, network: Network) -> Iterator[DockerContainer]:
    with DockerContainer(image).with_network(network).with_command("sleep 600") as container:
        yield container


def run_in(container: DockerContainer, line: str) -> str:
    status, output = container.exec(["sh", "-c", line])
    assert status == 0, output
    return output.decode()


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_testcontainers_for_python(image: str, mode: str) -> None:
    with Network() as network:
        kafka = KafkaContainer(image).with_network(network).with_network_aliases("kafka")
        if mode == "kraft":
            kafka = kafka.with_kraft()
        with kafka, in_network(image, network) as client:
            bootstrap = kafka.get_bootstrap_server()
            produced(bootstrap, "from outside")
            run_in(client, "echo from inside | kafka-console-producer --bootstrap-server kafka:9092 --topic words")
            read = "kafka-console-consumer --bootstrap-server kafka:9092 --topic words --from-beginning"
            inside = run_in(client, f"{read} --max-messages 2")
            outside = consumed(bootstrap, 2)
            configs = run_in(client, "ottla cluster status --json --bootstrap kafka:9092")

    assert sorted(inside.splitlines()) == outside == ["from inside", "from outside"]
    # What `with_kraft` gives to `kafka-storage format`.
    assert ("MkU3OEVBNTcwNTJENDM2Qk" in configs) == (mode == "kraft")


@pytest.mark.java
def test_testcontainers_for_java(image: str) -> None:
    """KafkaContainer, ConfluentKafkaContainer, and the old KafkaContainer with KRaft and with ZooKeeper."""
    with alone("maven"):
        try:
            classpath = apache_kafka.classpath(JAVA / "testcontainers" / "pom.xml")
        except NotMeasured as reason:
            pytest.skip(str(reason))

    done = subprocess.run(
        [*program(JAVA / "Containers.java", classpath), image],
        env=os.environ | TESTCONTAINERS,
        capture_output=True,
        text=True,
        timeout=CONTAINERS_WITHIN_S,
    )

    assert done.returncode == 0, done.stderr[-5000:]
    classes = (
        "KafkaContainer",
        "ConfluentKafkaContainer",
        "old KafkaContainer, KRaft",
        "old KafkaContainer, ZooKeeper",
    )
    read = "from inside,from outside"
    assert done.stdout.splitlines() == [
        f"{name}, {where}: {read}" for name in classes for where in ("inside", "outside")
    ]

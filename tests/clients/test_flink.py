"""Flink's Kafka sink with DeliveryGuarantee.EXACTLY_ONCE: a job that is killed before it can commit a checkpoint."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from benchmarks import apache_kafka
from benchmarks.figure import NotMeasured
from tests.clients.frame_relay import FrameRelay
from tests.clients.test_confluent_kafka import create_topic
from tests.clients.test_librdkafka_transactions import TO_THE_END, consumer, until_end
from tests.java_tools import program
from tests.locks import alone
from tests.ports import free_ports
from tests.served import ServedBroker

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

JAVA = Path(__file__).parents[1] / "java" / "flink"
JOB = JAVA / "ExactlyOnce.java"
POM = JAVA / "pom.xml"
NUMBERS = [str(number) for number in range(2_000)]
JOB_WITHIN_S = 240
END_TXN = 26
# Its serializers look into classes of the virtual machine.
OPENED = ("java.lang", "java.util", "java.util.concurrent", "java.net", "java.io", "java.nio", "java.time")


@pytest.fixture(scope="module")
def job() -> list[str]:
    """The command of the job, but for its arguments; skips where Java, Maven or the jars cannot be had."""
    with alone("maven"):
        try:
            jars = apache_kafka.classpath(POM)
        except NotMeasured as reason:
            pytest.skip(str(reason))
    return program(JOB, jars, [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED])


class Relayed:
    """A broker behind a relay, which kills a job at its second EndTxn: one checkpoint is committed, the next is not."""

    def __init__(self, directory: Path) -> None:
        port, hidden = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self.job: subprocess.Popen[str] | None = None
        self.ends = 0
        advertised = ["--advertise", self.address]
        self.broker = ServedBroker(directory / "data", listen=f"127.0.0.1:{hidden}", arguments=advertised)
        self.broker.start()
        self.relay = FrameRelay(self.address, f"127.0.0.1:{hidden}", self._passes)

    def _passes(self, api_key: int) -> bool:
        if api_key != END_TXN or self.job is None:
            return True
        self.ends += 1
        if self.ends < 2:
            return True
        self.job.kill()
        return False

    def close(self) -> None:
        self.relay.close()
        self.broker.stop()


@pytest.fixture
def relayed(tmp_path: Path) -> Iterator[Relayed]:
    relayed = Relayed(tmp_path)
    yield relayed
    relayed.close()


def committed(broker: ServedBroker) -> list[str]:
    reader = consumer(broker, "readers", isolation_level="read_committed", **TO_THE_END)
    values = until_end(reader, TopicPartition("numbers", 0, 0))
    reader.close()
    return [str(value, "utf-8") for value in values]


def test_job_killed_before_its_commit_writes_each_once(tmp_path: Path, job: list[str], relayed: Relayed) -> None:
    create_topic(relayed.broker, "numbers")
    checkpoints = tmp_path / "checkpoints"
    arguments = [relayed.broker.bootstrap, str(checkpoints)]

    relayed.job = subprocess.Popen([*job, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said, errors = relayed.job.communicate(timeout=JOB_WITHIN_S)
    assert relayed.ends == 2, f"{said}\n{errors[-3000:]}"
    relayed.job = None
    before = committed(relayed.broker)
    latest = max(checkpoints.glob("*/chk-*/_metadata"), key=lambda path: int(path.parent.name.removeprefix("chk-")))
    done = subprocess.run([*job, *arguments, str(latest.parent)], capture_output=True, text=True, timeout=JOB_WITHIN_S)

    assert "FINISHED" in done.stdout, done.stderr[-3000:]
    assert before == NUMBERS[: len(before)]
    assert 0 < len(before) < len(NUMBERS)
    assert committed(relayed.broker) == NUMBERS

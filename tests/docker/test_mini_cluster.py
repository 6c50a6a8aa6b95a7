"""compose.yaml brought up, with clients on both sides of its network, while containers are killed and cut off."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.cluster_processes import wait_for
from tests.docker.engine import ROOT, build_image
from tests.docker.mini_cluster import BROKERS, NO_COMPOSE, MiniCluster, compose_commands, is_whole, running_mini_cluster
from tests.docker.progress import Progress
from tests.histories.checker import check
from tests.histories.files import HistoryFile, read_histories
from tests.storm import final, storm
from tests.storm.settings import PARTITIONS, TOPIC

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(600)]

RECORDS_PER_S = 50
SAID_WITHIN_S = 30
DOES_NOT_ANSWER, ANSWERS_AGAIN = "the metadata store does not answer", "the metadata store answers again"
# But not the same with a comma: a broker that starts, or stops, says so with more.
SAID_OF_THE_STORE = re.compile(f"(?:{DOES_NOT_ANSWER}(?!,)|{ANSWERS_AGAIN})")
READERS = {"member-a": ["aiokafka_member"], "member-b": ["confluent_member"], "watcher": ["watcher"]}
# A container that is gone closes no connection: how long aiokafka waits for its answer.
DELIVERY_TIMEOUT_MS = 15_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniCluster]:
    build_image()
    directory = tmp_path_factory.mktemp("mini-cluster")
    # Containers write there too, as the user that runs the tests.
    with running_mini_cluster(directory) as cluster:
        yield cluster


def test_every_compose_that_is_installed_can_read_the_file(tmp_path: Path) -> None:
    commands = compose_commands()
    if not commands:
        pytest.skip(NO_COMPOSE)

    whole = {"etcd", *BROKERS, "grafana", "prometheus"}
    for command in commands:
        cluster = MiniCluster(command, tmp_path)
        # docker-compose 1.29 lists what is in a profile whether that is asked for or not.
        assert {"etcd", *BROKERS} <= set(cluster.compose("config", "--services").split()) <= whole
        assert set(cluster.compose("--profile", "observe", "config", "--services").split()) == whole


def test_each_side_gets_the_addresses_that_it_can_reach(cluster: MiniCluster) -> None:
    outside = cluster.admin().list_topics(timeout=20).brokers.values()

    assert {f"{broker.host}:{broker.port}" for broker in outside} == set(cluster.bootstrap.split(","))
    inside = cluster.ottla("ottla1", "cluster", "status")
    assert all(f"{broker}:9092" in inside for broker in BROKERS)


def test_what_is_written_outside_is_read_inside(cluster: MiniCluster) -> None:
    cluster.create_topic("words", 3, 3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(30):
        producer.produce("words", f"word-{number}".encode(), partition=number % 3)
    assert producer.flush(20) == 0

    read = cluster.ottla("ottla3", "consume", "words", "--from-beginning", "--exit-at-end")

    assert Counter(read.split()) == Counter(f"word-{number}" for number in range(30))


def test_what_the_clusters_page_says_works_when_pasted(cluster: MiniCluster) -> None:
    section = (ROOT / "docs" / "clusters.md").read_text().partition("## In containers\n")[2]
    up, *lines = section.partition("```sh\n")[2].partition("```")[0].splitlines()

    printed = cluster.paste(lines).splitlines()

    assert up.startswith("docker compose up ")
    assert printed[0] == "created topic orders"
    assert [line for line in printed if line.isdecimal()] == ["500", "1500"]
    cluster.wait_until_all_see("three brokers in sync", is_whole)


def test_acknowledged_records_survive_killed_containers(cluster: MiniCluster) -> None:
    """R13: records and committed offsets are there at the end, and no fault stops all of the clients."""
    cluster.create_topic(TOPIC, PARTITIONS, 3)
    progress = Progress(cluster.directory)
    with HistoryFile(cluster.directory / "history-end.jsonl") as history:
        with storm.clients(cluster, READERS, RECORDS_PER_S), cluster.client_inside("inside-c", "aiokafka_member"):
            with producers(cluster):
                progress.wait("at the beginning")
                faults(cluster, progress)
            final.wait_until_drained(cluster.bootstrap, history)
        logs = final.read_back(cluster.bootstrap, history)

    assert check(read_histories(sorted(cluster.directory.glob("history-*.jsonl"))), logs) == []
    assert sum(len(log.records) for log in logs.values()) > 0
    assert [broker for broker in BROKERS if "Traceback" in cluster.logs(broker)] == []


@contextmanager
def producers(cluster: MiniCluster) -> Iterator[None]:
    with (
        storm.clients(cluster, {"outside": ["confluent_producer"]}, RECORDS_PER_S),
        cluster.client_inside(
            "inside",
            "aiokafka_producer",
            "--delivery-timeout-ms",
            str(DELIVERY_TIMEOUT_MS),
            "--records-per-s",
            str(RECORDS_PER_S),
        ),
    ):
        yield


def faults(cluster: MiniCluster, progress: Progress) -> None:
    """One after the other; between them every partition is written to and every one is read by the group."""
    cluster.kill("ottla1")
    progress.wait("without ottla1")
    cluster.start("ottla1")
    cluster.wait_until_all_see("three brokers in sync", is_whole)

    cluster.cut_off("ottla2")
    wait_until_said(cluster, ["ottla2"], DOES_NOT_ANSWER)
    progress.wait("with ottla2 cut off")
    cluster.reconnect("ottla2")
    # Before that, it sees the cluster as it was.
    wait_until_said(cluster, ["ottla2"], ANSWERS_AGAIN)
    cluster.wait_until_all_see("three brokers in sync", is_whole)

    cluster.kill("etcd")
    wait_until_said(cluster, BROKERS, DOES_NOT_ANSWER)
    progress.wait("without etcd")
    cluster.start("etcd")
    wait_until_said(cluster, BROKERS, ANSWERS_AGAIN)

    cluster.stop("ottla3")
    progress.wait("without ottla3")
    cluster.start("ottla3")
    cluster.wait_until_all_see("three brokers in sync", is_whole)


def wait_until_said(cluster: MiniCluster, brokers: Sequence[str], words: str) -> None:
    """Until it is the last that each of the brokers has said of the store, which on a slow machine it may have said
    before."""
    for broker in brokers:
        wait_for(
            lambda broker=broker: SAID_OF_THE_STORE.findall(cluster.logs(broker))[-1:] == [words],
            SAID_WITHIN_S,
            lambda broker=broker: f"{broker} said {SAID_OF_THE_STORE.findall(cluster.logs(broker))}",
        )

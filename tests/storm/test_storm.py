"""The storm itself, against one broker: clients, faults and checks work together, and a seeded loss is found."""

import os
from pathlib import Path

import pytest

from tests.cluster_processes import ClusterProcesses, wait_for
from tests.histories.checker import Kind, check
from tests.histories.files import HistoryFile, read_histories
from tests.storm import final, storm
from tests.storm.faults import Action, Step
from tests.storm.replicas import batches
from tests.storm.settings import PARTITIONS, TOPIC, broker_settings

STEPS = [
    Step(1.5, Action.KILL, 1),
    Step(1.8, Action.START, 1),
    Step(4.0, Action.PAUSE, 1),
    Step(4.3, Action.RESUME, 1),
    Step(4.6, Action.STOP, 1),
    Step(4.8, Action.START, 1),
]


@pytest.mark.skipif("OTTLA_STORMED" in os.environ, reason="make storm has run")
def test_one_broker_comes_through_a_small_storm(tmp_path: Path) -> None:
    outcome = storm.run(tmp_path, STEPS, duration_s=6, brokers=1, records_per_s=100)

    assert (outcome.violations, outcome.failures) == ([], [])
    assert outcome.done == {Action.KILL: 1, Action.PAUSE: 1, Action.RESUME: 1, Action.STOP: 1, Action.START: 2}
    assert outcome.counts["acknowledged"] > 100


def test_a_log_cut_by_hand_is_a_loss(tmp_path: Path) -> None:
    """And nothing else: the broker recovers from it as from any torn tail."""
    with ClusterProcesses(tmp_path, broker_settings(1), brokers=1) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, 1)
        with storm.clients(cluster, {"confluent": ["confluent_producer"]}, records_per_s=200):
            written = tmp_path / "history-confluent.jsonl"
            wait_for(lambda: written.exists() and written.read_text().count("Acknowledged") > 300, 20, "no progress")
        cluster.brokers[1].kill()
        log = cluster.brokers[1].data_dir / f"{TOPIC}-0" / f"{0:020}.log"
        last = list(batches(log.parent))[-1]
        with log.open("r+b") as file:
            file.truncate(log.stat().st_size - len(last.content))
        cluster.brokers[1].start()
        with HistoryFile(tmp_path / "history-end.jsonl") as history:
            logs = final.read_back(cluster.bootstrap, history)

    violations = check(read_histories(tmp_path.glob("history-*.jsonl")), logs)

    assert {violation.kind for violation in violations} == {Kind.LOST}
    assert len(violations) == last.end_offset - last.base_offset

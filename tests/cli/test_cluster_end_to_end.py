"""An operator's commands against a cluster of three: one process, three brokers, real replication."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster_processes import wait_for
from tests.conftest import QUICK_GROUPS
from tests.served import ServedBroker

WITHIN_S = 60


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    data_dir = tmp_path_factory.mktemp("cluster") / "data"
    with ServedBroker(data_dir, QUICK_GROUPS, arguments=["--brokers", "3"]) as broker:
        yield broker


def ottla(served: ServedBroker, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, "OTTLA_BOOTSTRAP": served.bootstrap},
        timeout=WITHIN_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def json_of(served: ServedBroker, *arguments: str) -> Any:
    return json.loads(ottla(served, *arguments, "--json"))


def test_a_topic_is_copied_moved_and_led_by_others(served: ServedBroker) -> None:
    ottla(served, "topics", "create", "orders", "--assignment", "0=0,1,2", "--assignment", "1=1,2,0")
    ottla(served, "produce", "orders", stdin="".join(f"order {i}\n" for i in range(1000)))

    def followers_have_all() -> bool:
        status = json_of(served, "cluster", "status")
        return [broker["lag"] for broker in status["brokers"]] == [0, 0, 0]

    wait_for(followers_have_all, WITHIN_S, "the followers have not come up with their leaders")
    assert ottla(served, "partitions", "reassign", "orders:0=2,0", "orders:1=0,1", "--wait") == (
        "orders:0 moved to 2,0\norders:1 moved to 0,1\n"
    )
    ottla(served, "partitions", "elect", "orders", "--preferred")

    described = json_of(served, "partitions", "describe", "orders")
    assert [(row["leader"], row["replicas"], sorted(row["isr"])) for row in described] == [
        (2, [2, 0], [0, 2]),
        (0, [0, 1], [0, 1]),
    ]
    consumed = ottla(served, "consume", "orders", "--from-beginning", "--exit-at-end").splitlines()
    assert sorted(consumed) == sorted(f"order {i}" for i in range(1000))


def test_a_healthy_cluster_is_said_to_be_so(served: ServedBroker) -> None:
    ottla(served, "topics", "create", "fine", "--partitions", "6", "--replication-factor", "3")

    status = json_of(served, "cluster", "status")

    assert (status["controller"], status["under_replicated"], status["offline"], status["degraded"]) == (0, 0, 0, [])
    assert [broker["is_live"] for broker in status["brokers"]] == [True] * 3
    assert all(address in ottla(served, "cluster", "status") for address in served.bootstrap.split(","))

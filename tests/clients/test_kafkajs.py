"""kafkajs, where Node and the package can be had."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.served import ServedBroker

SOURCES = Path(__file__).parent / "node"
INSTALL_WITHIN_S = 60
SCENARIO_WITHIN_S = 60


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the scripts and their installed package; skips where there is no Node or no package."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    directory = tmp_path_factory.mktemp("node") / "scripts"
    shutil.copytree(SOURCES, directory)
    install = ["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(install, cwd=directory, capture_output=True, text=True, timeout=INSTALL_WITHIN_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not install kafkajs within {INSTALL_WITHIN_S} s")
    if done.returncode != 0:
        pytest.skip(f"npm cannot install kafkajs: {done.stderr[-300:]}")
    return directory


def said(broker: ServedBroker, script: Path) -> Any:
    command = ["node", str(script), broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SCENARIO_WITHIN_S)
    assert done.returncode == 0, f"{done.stderr[-3000:]}\n{broker.stderr[-3000:]}"
    return json.loads(done.stdout)


def test_kafkajs_administers_produces_and_consumes_in_a_group(broker: ServedBroker, scripts: Path) -> None:
    assert said(broker, scripts / "scenario.js") == {
        "created": True,
        "createdAgain": False,
        "badName": "INVALID_TOPIC_EXCEPTION",
        "retention": "100000",
        "group": ["Stable", "RoundRobinAssigner", 3],
        "deletedAlive": "NON_EMPTY_GROUP",
        "committed": 300,
        "deleted": 0,
        "topicsLeft": [],
        "keyless": "INVALID_RECORD",
    }


def test_kafkajs_commits_aborts_and_is_fenced(broker: ServedBroker, scripts: Path) -> None:
    """What it says of Apache Kafka 4.1 too. The errors of its own are of what goes on after the end."""
    assert said(broker, scripts / "transactions.js") == {
        "second": "KafkaJSNonRetriableError",
        "afterEnd": "KafkaJSNonRetriableError",
        "afterAbort": "KafkaJSNonRetriableError",
        "flow": "abcdij",
        "flowUncommitted": "abcdfghij",
        "mixed": "paaqccr",
        "small": "abcdefghijklmnopqrstyz",
        "offsets": ["10", "5"],
        "ongoing": "ab",
        "fenced": "INVALID_PRODUCER_EPOCH",
        "newer": "ab",
    }

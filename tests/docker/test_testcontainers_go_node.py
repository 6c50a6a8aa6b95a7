"""Testcontainers' Kafka modules for Go and for Node, as released, start the image in place of Kafka's."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.go_programs import built
from tests.docker.engine import TESTCONTAINERS, build_kafka_image, docker

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
INSTALL_WITHIN_S = 120
CONTAINERS_WITHIN_S = 180
VALUE = "from outside"


@pytest.fixture(scope="module")
def image() -> str:
    return build_kafka_image()


@pytest.fixture(autouse=True)
def with_testcontainers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TESTCONTAINERS.items():
        monkeypatch.setenv(name, value)


def printed(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=CONTAINERS_WITHIN_S)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_testcontainers_for_go(image: str, tmp_path: Path) -> None:
    """CLUSTER_ID is one, and what its script gives to `kafka-storage format` another."""
    program = built(HERE / "go", tmp_path) / "containers"

    assert printed(str(program), image) == f"{VALUE}\n"


def test_testcontainers_for_node(image: str, tmp_path: Path) -> None:
    """With ZooKeeper and with KRaft; by scripts for Confluent Platform 7.9, and for one before 7.4."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    directory = tmp_path / "scripts"
    shutil.copytree(HERE / "node", directory)
    install = ["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts"]
    try:
        done = subprocess.run(install, cwd=directory, capture_output=True, text=True, timeout=INSTALL_WITHIN_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not install Testcontainers within {INSTALL_WITHIN_S} s")
    if done.returncode != 0:
        pytest.skip(f"npm cannot install Testcontainers: {done.stderr[-300:]}")
    old = f"{image.partition(':')[0]}:7.3.0"
    docker("tag", image, old)

    for name in (image, old):
        said = printed("node", str(directory / "containers.js"), name)
        assert json.loads(said) == [VALUE, VALUE]

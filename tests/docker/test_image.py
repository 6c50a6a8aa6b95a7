"""The image, built and run as its user would."""

import json
import subprocess
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from ottla.cli.app import cli
from tests.docker.engine import build_image, docker, inspect, wait_until_healthy
from tests.ports import free_ports

STOPPED_WITHIN_S = 10
CLEAN_MARK = ".kafka_cleanshutdown"

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def image() -> str:
    return build_image()


class Container:
    def __init__(self, image: str, volume: str) -> None:
        self.bootstrap = f"127.0.0.1:{free_ports(1)[0]}"
        serve = ("serve", "--listen", "0.0.0.0:9092", "--advertise", self.bootstrap, "--data-dir", "/data")
        publish = ("--publish", f"{self.bootstrap}:9092")
        self.id = docker("run", "--detach", *publish, "--volume", f"{volume}:/data", image, *serve)

    def remove(self) -> None:
        subprocess.run(["docker", "rm", "--force", self.id], capture_output=True)


@pytest.fixture
def volume() -> Iterator[str]:
    name = docker("volume", "create")
    yield name
    subprocess.run(["docker", "volume", "rm", "--force", name], capture_output=True)


def ottla(container: Container, *arguments: str, stdin: str = "") -> str:
    result = CliRunner().invoke(cli, [*arguments, "--bootstrap", container.bootstrap], input=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_image_serves_keeps_its_data_and_stops_in_time(image: str, volume: str) -> None:
    first = Container(image, volume)
    try:
        wait_until_healthy(first.id)
        ottla(first, "produce", "words", stdin="one\ntwo\n")
        assert docker("exec", first.id, "id", "--user") == "10001"
        started_at = time.monotonic()
        docker("stop", "--time", "30", first.id)
        assert time.monotonic() - started_at < STOPPED_WITHIN_S
        assert inspect(first.id, "{{.State.ExitCode}}") == "0"
        kept = docker("run", "--rm", "--volume", f"{volume}:/data", "--entrypoint", "ls", image, "-A", "/data")
        assert CLEAN_MARK in kept.splitlines()
    finally:
        first.remove()

    second = Container(image, volume)
    try:
        wait_until_healthy(second.id)
        ottla(second, "produce", "words", stdin="three\n")
        assert ottla(second, "consume", "words", "--from-beginning", "--exit-at-end") == "one\ntwo\nthree\n"
    finally:
        second.remove()


def test_the_image_says_what_it_is_made_for(image: str) -> None:
    config = json.loads(docker("inspect", "--format", "{{json .Config}}", image))

    assert config["User"] == "10001:10001"
    assert list(config["ExposedPorts"]) == ["9092/tcp", "9644/tcp"]
    assert list(config["Volumes"]) == ["/data"]
    assert config["Entrypoint"] == ["ottla"]
    assert config["Healthcheck"]["Test"][0] == "CMD-SHELL"
    assert config["Healthcheck"]["Test"][1].startswith("ottla health --url http://127.0.0.1:9644 ||")


def test_etcd_is_in_the_image(image: str) -> None:
    """One image is all that compose.yaml needs."""
    assert "etcd Version: 3." in docker("run", "--rm", "--entrypoint", "etcd", image, "--version")
    docker("run", "--rm", "--entrypoint", "python", image, "-c", "import ottla.cluster.etcd")

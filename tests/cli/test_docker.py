"""The image, built and run as its user would."""

import asyncio
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.app import cli

ROOT = Path(__file__).parents[2]
IMAGE = "ottla-under-test"
HEALTHY_WITHIN_S = 60
STOPPED_WITHIN_S = 10
CLEAN_MARK = ".kafka_cleanshutdown"

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(600)]


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def why_not() -> str | None:
    """Why images cannot be built and run here, or None."""
    try:
        done = subprocess.run(["docker", "info"], capture_output=True, text=True, timeout=30)
    except FileNotFoundError:
        return "there is no docker command"
    except subprocess.TimeoutExpired:
        return "the Docker engine does not answer"
    return None if done.returncode == 0 else f"no Docker engine: {done.stderr.strip()}"


@pytest.fixture(scope="module")
def image() -> str:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    base = os.environ.get("PYTHON_IMAGE")
    arguments = ["--build-arg", f"PYTHON_IMAGE={base}"] if base else []
    docker("build", "--network", "host", "--tag", IMAGE, *arguments, str(ROOT))
    return IMAGE


class Container:
    def __init__(self, image: str, volume: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.bootstrap = f"127.0.0.1:{free.getsockname()[1]}"
        serve = ("serve", "--listen", "0.0.0.0:9092", "--advertise", self.bootstrap, "--data-dir", "/data")
        publish = ("--publish", f"{self.bootstrap}:9092")
        self.id = docker("run", "--detach", *publish, "--volume", f"{volume}:/data", image, *serve)

    def wait_until_healthy(self) -> None:
        deadline = time.monotonic() + HEALTHY_WITHIN_S
        while (health := self.inspect("{{.State.Health.Status}}")) != "healthy":
            assert time.monotonic() < deadline, f"{health}: {docker('logs', self.id)}"
            assert self.inspect("{{.State.Running}}") == "true", docker("logs", self.id)
            asyncio.run(asyncio.sleep(0.2))

    def inspect(self, what: str) -> str:
        return docker("inspect", "--format", what, self.id)

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
        first.wait_until_healthy()
        ottla(first, "produce", "words", stdin="one\ntwo\n")
        assert docker("exec", first.id, "id", "--user") == "10001"
        started_at = time.monotonic()
        docker("stop", "--time", "30", first.id)
        assert time.monotonic() - started_at < STOPPED_WITHIN_S
        assert first.inspect("{{.State.ExitCode}}") == "0"
        kept = docker("run", "--rm", "--volume", f"{volume}:/data", "--entrypoint", "ls", image, "-A", "/data")
        assert CLEAN_MARK in kept.splitlines()
    finally:
        first.remove()

    second = Container(image, volume)
    try:
        second.wait_until_healthy()
        ottla(second, "produce", "words", stdin="three\n")
        assert ottla(second, "consume", "words", "--from-beginning", "--exit-at-end") == "one\ntwo\nthree\n"
    finally:
        second.remove()


def test_the_image_says_what_it_is_made_for(image: str) -> None:
    config = json.loads(docker("inspect", "--format", "{{json .Config}}", image))

    assert config["User"] == "10001:10001"
    assert list(config["ExposedPorts"]) == ["9092/tcp"]
    assert list(config["Volumes"]) == ["/data"]
    assert config["Entrypoint"] == ["ottla"]
    assert config["Healthcheck"]["Test"][:3] == ["CMD", "ottla", "ping"]

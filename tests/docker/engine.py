"""Docker, as the tests use it: by its command line."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster_processes import wait_for
from tests.locks import alone

ROOT = Path(__file__).parents[2]
IMAGE = "ottla-under-test"
# Testcontainers takes the tag for a version of Confluent Platform.
KAFKA_IMAGE = f"{IMAGE}-kafka:7.9.0"
# For Testcontainers. Ryuk is an image of its own, which removes containers of test runs that were killed. Where tests
# run in a container, Testcontainers would start yet another, which cannot be had everywhere, to find the host.
TESTCONTAINERS = {"TESTCONTAINERS_RYUK_DISABLED": "true", "TESTCONTAINERS_HOST_OVERRIDE": "localhost"}
HEALTHY_WITHIN_S = 60
# A build without anything in its cache takes longest.
DONE_WITHIN_S = 300


def docker(*arguments: str) -> str:
    return run("docker", *arguments)


def run(*command: str, **environment: str) -> str:
    """Its standard output; AssertionError with what it complained of, TimeoutExpired after a long while."""
    surroundings = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=surroundings, cwd=ROOT, timeout=DONE_WITHIN_S)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout.strip()


def why_no_docker() -> str | None:
    """Why images cannot be built and run here, or None."""
    try:
        done = subprocess.run(["docker", "info"], capture_output=True, text=True, timeout=30)
    except FileNotFoundError:
        return "there is no docker command"
    except subprocess.TimeoutExpired:
        return "the Docker engine does not answer"
    return None if done.returncode == 0 else f"no Docker engine: {done.stderr.strip()}"


def build_image(tag: str = IMAGE, target: str = "ottla") -> str:
    """The image of this tree, from the base image that PYTHON_IMAGE names; skips where there is no Docker."""
    reason = why_no_docker()
    if reason is not None:
        pytest.skip(reason)
    base = os.environ.get("PYTHON_IMAGE")
    arguments = ["--build-arg", f"PYTHON_IMAGE={base}"] if base else []
    # A second build finds every layer in the engine's cache.
    with alone("image"):
        docker("build", "--network", "host", "--target", target, "--tag", tag, *arguments, str(ROOT))
    return tag


def build_kafka_image() -> str:
    """The one in place of apache/kafka; skips where there is no Docker."""
    return build_image(KAFKA_IMAGE, "kafka")


def inspect(container: str, what: str) -> str:
    return docker("inspect", "--format", what, container)


def logs(container: str) -> str:
    """What a container wrote, to both its outputs."""
    done = subprocess.run(["docker", "logs", container], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout


def wait_until_healthy(container: str) -> None:
    def is_healthy() -> bool:
        assert inspect(container, "{{.State.Running}}") == "true", logs(container)
        return inspect(container, "{{.State.Health.Status}}") == "healthy"

    wait_for(is_healthy, HEALTHY_WITHIN_S, _not_healthy(container))


def _not_healthy(container: str) -> Callable[[], str]:
    return lambda: f"not healthy: {logs(container)}"

"""The cluster of compose.yaml, on ports of its own."""

import asyncio
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ottla.protocol.messages.metadata import MetadataRequest
from tests.broker.asking import Client
from tests.cluster_processes import RunningCluster, wait_for
from tests.docker.engine import IMAGE, ROOT, docker, inspect, logs, run, wait_until_healthy
from tests.ports import free_ports

BROKERS = ("ottla1", "ottla2", "ottla3")
NO_COMPOSE = "there is neither `docker compose` nor docker-compose"
SEEN_WITHIN_S = 60
ANSWER_WITHIN_S = 5
METADATA_VERSION = 12
INSIDE = ",".join(f"{broker}:9092" for broker in BROKERS)


def compose_commands() -> list[tuple[str, ...]]:
    """Those that are installed: Compose v2, which is a part of docker, and docker-compose, which may be 1.29."""
    found = [("docker", "compose"), ("docker-compose",)]
    return [command for command in found if shutil.which(command[0]) and _works(command)]


def _works(command: Sequence[str]) -> bool:
    return subprocess.run([*command, "version"], capture_output=True).returncode == 0


class MiniCluster(RunningCluster):
    """`directory` is where its clients write. Services carry the names of compose.yaml; `files` are in place of it."""

    def __init__(self, compose: Sequence[str], directory: Path, files: Sequence[str] = ()) -> None:
        self.directory = directory
        self._project = f"ottla-{uuid4().hex[:8]}"
        chosen = [word for file in files for word in ("--file", file)]
        self._compose = (*compose, *chosen, "--project-name", self._project)
        ports = free_ports(len(BROKERS))
        self._environment = {f"OTTLA_PORT_{number}": str(port) for number, port in enumerate(ports, start=1)}
        self._environment["OTTLA_IMAGE"] = IMAGE
        self._containers: dict[str, str] = {}
        self._addresses = {broker: ("127.0.0.1", port) for broker, port in zip(BROKERS, ports, strict=True)}
        self.bootstrap = ",".join(f"{host}:{port}" for host, port in self._addresses.values())

    @property
    def network(self) -> str:
        return f"{self._project}_default"

    def up(self) -> None:
        """Returns when all services are healthy."""
        self.compose("up", "--detach", "--no-build")
        for service in ("etcd", *BROKERS):
            self._containers[service] = self.compose("ps", "--quiet", service)
            wait_until_healthy(self._containers[service])

    def down(self) -> None:
        self.compose("down", "--volumes", "--timeout", "0")

    def compose(self, *arguments: str) -> str:
        return run(*self._compose, *arguments, **self._environment)

    def paste(self, lines: Iterable[str]) -> str:
        """Lines for a shell, `docker compose` standing for this cluster; their standard output."""
        text = "\n".join(lines).replace("docker compose", shlex.join(self._compose))
        return run("bash", "-e", "-o", "pipefail", "-c", text, **self._environment)

    # What befalls a service.

    def kill(self, service: str) -> None:
        docker("kill", self._containers[service])

    def stop(self, service: str) -> None:
        docker("stop", self._containers[service])
        assert inspect(self._containers[service], "{{.State.ExitCode}}") == "0", self.logs(service)

    def start(self, service: str) -> None:
        docker("start", self._containers[service])
        wait_until_healthy(self._containers[service])

    def cut_off(self, service: str) -> None:
        docker("network", "disconnect", self.network, self._containers[service])

    def reconnect(self, service: str) -> None:
        docker("network", "connect", "--alias", service, self.network, self._containers[service])

    def logs(self, service: str) -> str:
        return logs(self._containers[service])

    # What goes on inside.

    def ottla(self, service: str, *arguments: str) -> str:
        """The command line, beside the broker in its container."""
        return docker("exec", self._containers[service], "ottla", *arguments, "--bootstrap", INSIDE)

    # What each broker by itself knows.

    def wait_until_all_see(self, what: str, is_so: Callable[[Any], bool], brokers: Iterable[str] = BROKERS) -> None:
        """Until `is_so` holds for the Metadata answer of each of the brokers."""
        for broker in brokers:
            address = self._addresses[broker]
            complaint = f"{broker} does not see {what}: {self.logs(broker)}"
            wait_for(lambda address=address: _answers(address, is_so), SEEN_WITHIN_S, complaint)

    @contextmanager
    def client_inside(self, name: str, *arguments: str) -> Iterator[None]:
        """A client of the storm in a container in the cluster's network, for as long as the context is open.

        AssertionError if it fails."""
        container = docker(
            "run",
            "--detach",
            *("--network", self.network, "--user", f"{os.getuid()}:{os.getgid()}", "--workdir", "/source"),
            *("--volume", f"{ROOT / 'tests'}:/source/tests:ro", "--volume", f"{self.directory}:/histories"),
            *("--env", "PYTHONDONTWRITEBYTECODE=1", "--entrypoint", "python", IMAGE),
            *("-m", "tests.storm.clients", *arguments, "--name", name, "--bootstrap", INSIDE),
            *("--history", f"/histories/history-{name}.jsonl"),
        )
        try:
            yield
            docker("stop", "--time", "60", container)
            assert inspect(container, "{{.State.ExitCode}}") == "0", logs(container)
        finally:
            subprocess.run(["docker", "rm", "--force", "--volumes", container], capture_output=True)


def is_whole(answer: Any) -> bool:
    """Three brokers, and of each partition a leader and all replicas in sync."""
    partitions = [partition for topic in answer.topics for partition in topic.partitions]
    return len(answer.brokers) == len(BROKERS) and all(
        each.leader_id >= 0 and len(each.isr_nodes) == len(each.replica_nodes) for each in partitions
    )


def _answers(address: tuple[str, int], is_so: Callable[[Any], bool]) -> bool:
    async def ask() -> Any:
        client = Client(*await asyncio.open_connection(*address))
        try:
            return await asyncio.wait_for(client.ask(MetadataRequest(topics=None), METADATA_VERSION), ANSWER_WITHIN_S)
        finally:
            await client.close()

    try:
        return is_so(asyncio.run(ask()))
    except (OSError, EOFError, TimeoutError):
        return False


@contextmanager
def running_mini_cluster(directory: Path) -> Iterator[MiniCluster]:
    commands = compose_commands()
    if not commands:
        pytest.skip(NO_COMPOSE)
    cluster = MiniCluster(commands[0], directory)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()

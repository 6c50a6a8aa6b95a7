"""A real etcd for tests: one member, or several, on free ports, with its data in a directory of the test's."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.ports import free_ports

MISSING = "etcd is not installed (Debian: etcd-server)"


class EtcdServer:
    def __init__(self, directory: Path, name: str = "default", *, further: Mapping[str, str] | None = None) -> None:
        """`further` are arguments; with a certificate it speaks TLS to its clients."""
        if shutil.which("etcd") is None:
            pytest.skip(MISSING)
        self.directory = directory
        self.name = name
        self._further = dict(further or {})
        self.scheme = "https" if "--cert-file" in self._further else "http"
        self.port, peer_port = free_ports(2)
        self.peer_url = f"http://127.0.0.1:{peer_port}"
        self.members = [self]
        self.log_path = directory / "etcd.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        client, peer = f"{self.scheme}://127.0.0.1:{self.port}", self.peer_url
        arguments = {
            "--name": self.name,
            "--data-dir": str(self.directory / "etcd"),
            "--listen-client-urls": client,
            "--advertise-client-urls": client,
            "--listen-peer-urls": peer,
            "--initial-advertise-peer-urls": peer,
            "--initial-cluster": ",".join(f"{each.name}={each.peer_url}" for each in self.members),
            "--logger": "zap",
            "--log-outputs": str(self.log_path),
            **self._further,
        }
        command = ["etcd", "--unsafe-no-fsync", *(f"{name}={value}" for name, value in arguments.items())]
        with (self.directory / "etcd.err").open("wb") as errors:
            self._process = subprocess.Popen(_supported(command), stdout=subprocess.DEVNULL, stderr=errors)

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def send_signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def three_members(directory: Path) -> list[EtcdServer]:
    """Of one cluster; none is started yet."""
    members = []
    for number in range(3):
        (directory / str(number)).mkdir()
        members.append(EtcdServer(directory / str(number), f"m{number}"))
    for member in members:
        member.members = members
    return members


def _supported(command: list[str]) -> list[str]:
    """etcd 3.4 always syncs."""
    options = subprocess.run(["etcd", "--help"], capture_output=True, check=False, text=True)
    known = options.stdout + options.stderr
    return [part for part in command if part != "--unsafe-no-fsync" or part in known]

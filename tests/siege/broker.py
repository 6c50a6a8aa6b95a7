"""The broker of a siege: a process with limits, and what the kernel and the process itself say of it."""

import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.cluster_processes import RunningCluster, wait_for
from tests.ports import free_ports
from tests.served import ServedBroker
from tests.siege.memory_in_use import IN_USE
from tests.siege.wire import PASSWORD, USER
from tests.tls.certificates import Authority

COUNTED_WITHIN_S = 30
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    # Groups without members and offsets go at these intervals. Ten minutes, the default, would be long to wait for.
    "offsets.retention.check.interval.ms": "60000",
    # So do transactional ids that no producer uses, which a broker keeps for a week.
    "transactional.id.expiration.ms": "30000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "10000",
    # Segments of the well-behaved clients' topic roll often: what needs descriptors and disk is asked for all the time.
    "log.segment.bytes": "1048576",
}
# What well-behaved clients add and remove at any time.
ALLOWED = {"connections": 2, "unauthenticated connections": 1, "parked fetches": 4, "held bytes": 1 << 20, "topics": 2}
ALLOWED_TO_THE_END = {
    "fetch sessions": 4,
    "timers": 20,
    "groups": 8,
    "members": 2,
    "transactional ids": 0,
    # The coordinators' modules, producers and segments of the well-behaved, the history of metadata that followers and
    # restarts need.
    IN_USE: 16 << 20,
}
# Connections of clients, and what a log that rolls or a checkpoint has open for a moment.
DESCRIPTORS_ALLOWED = 12
RESIDENT_ALLOWED_BYTES = 48 << 20
# The command that gives a process a file system of its own, which is gone with it.
OWN_MOUNTS = ("unshare", "--mount", "--map-root-user")


@dataclass(frozen=True)
class Usage:
    """What the broker takes and holds at a moment."""

    resident_bytes: int
    descriptors: int
    """Without those of the logs' segments."""
    counts: dict[str, int]

    def kept_since(self, before: "Usage", *, to_the_end: bool = False) -> list[str]:
        """What there is more of than before, beyond what may come and go by itself. `to_the_end`: also what the broker
        keeps for minutes."""
        allowed = ALLOWED | (ALLOWED_TO_THE_END if to_the_end else {})
        kept = [
            f"{self.counts[name] - before.counts[name]} {name}"
            for name, more in allowed.items()
            if self.counts[name] - before.counts[name] > more
        ]
        if self.descriptors - before.descriptors > DESCRIPTORS_ALLOWED:
            kept.append(f"{self.descriptors - before.descriptors} descriptors")
        if to_the_end and self.resident_bytes - before.resident_bytes > RESIDENT_ALLOWED_BYTES:
            kept.append(f"{(self.resident_bytes - before.resident_bytes) >> 20} MiB")
        return kept


class SiegedBroker(RunningCluster):
    """`ottla serve` with `memory_mib` of memory. With `disk_mib` its data is on a small disk of its own. Beside the
    listener of the other clients it has one with a login, by which the probe comes, and one with TLS too.

    A context that starts and stops it."""

    def __init__(self, directory: Path, *, memory_mib: int, disk_mib: int = 0) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._counts_path = directory / "counts.json"
        data_dir = directory / "broker"
        limited = [sys.executable, "-m", "tests.siege.limited", str(memory_mib), str(self._counts_path)]
        plain, login, tls = (f"127.0.0.1:{port}" for port in free_ports(3))
        self.login, self.tls = login, tls
        self.served = ServedBroker(
            data_dir,
            SETTINGS | _listeners(directory, plain, login, tls),
            listen=plain,
            arguments=["--log-format", "json"],
            launcher=[*_on_a_small_disk(data_dir, disk_mib), *limited] if disk_mib else limited,
        )
        self.bootstrap = self.served.listen

    @property
    def addresses(self) -> list[str]:
        """As options of a command."""
        return ["--bootstrap", self.bootstrap, "--login", self.login, "--tls", self.tls]

    @property
    def pid(self) -> int:
        return self.served.pid

    @property
    def data_dir(self) -> Path:
        """As other processes reach it, for the mounts of this one are its own."""
        return Path(f"/proc/{self.pid}/root") / self.served.data_dir.relative_to("/")

    @property
    def log_bytes(self) -> int:
        return self.served.stderr_path.stat().st_size

    def log(self, start: int = 0, end: int | None = None) -> list[dict[str, object]]:
        """The log's lines between two positions in bytes; what is no event, such as a traceback, under `text`."""
        content = self.served.stderr_path.read_bytes()[start:end].decode(errors="replace")
        return [json.loads(line) if line.startswith("{") else {"text": line} for line in content.splitlines()]

    def usage(self, *, with_memory: bool = False) -> Usage:
        """`with_memory`: with the bytes that are in use, for which the loop stops for some hundredths of a second."""
        counts = self.counts(signal.SIGUSR1 if with_memory else signal.SIGUSR2)
        return Usage(self._status("VmRSS"), descriptors_of(self.pid, but_segments=True), counts)

    def counts(self, asked_by: signal.Signals = signal.SIGUSR2) -> dict[str, int]:
        self._counts_path.unlink(missing_ok=True)
        os.kill(self.pid, asked_by)
        wait_for(self._counts_path.exists, COUNTED_WITHIN_S, "the broker's loop does not answer a signal")
        counted: dict[str, int] = json.loads(self._counts_path.read_text())
        return counted

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def peak_bytes(self) -> int:
        """The most that was resident since `forget_peak`."""
        return self._status("VmHWM")

    def _status(self, field: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) << 10
        raise AssertionError(f"the kernel does not say {field} of process {self.pid}")

    def __enter__(self) -> "SiegedBroker":
        self.served.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.served.is_running:
            self.served.kill()


def _listeners(directory: Path, plain: str, login: str, tls: str) -> dict[str, str]:
    users = directory / "users"
    users.write_text(f"{USER}:{PASSWORD}\n")
    users.chmod(0o600)
    authority = Authority()
    authority.write(directory / "ca.pem")
    return {
        "listeners": f"PLAINTEXT://{plain},LOGIN://{login},TLS://{tls}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,TLS:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.users.file": str(users),
        "listener.name.tls.plain.users.file": str(users),
        "listener.name.tls.ssl.keystore.location": str(authority.issue("broker").write(directory / "broker.pem")),
    }


def descriptors_of(pid: int, *, but_segments: bool = False) -> int:
    """How many the process has open. `but_segments`: not those of logs, which grow for as long as they are written;
    those of deleted ones count."""
    open_files: list[str] = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            open_files.append(str(link.readlink()))
    return sum(not (but_segments and name.endswith(".log")) for name in open_files)


def limit_descriptors(pid: int, count: int) -> int:
    """How many descriptors the process may have from now on; returns how many it could have before."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (count, hard))
    return soft


def can_mount() -> bool:
    """Whether this user may give a process a small disk."""
    try:
        command = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _on_a_small_disk(data_dir: Path, disk_mib: int) -> list[str]:
    data_dir.mkdir(parents=True, exist_ok=True)
    mount = f'mount -t tmpfs -o size={disk_mib}m tmpfs "{data_dir}" && exec "$@"'
    return [*OWN_MOUNTS, "sh", "-c", mount, "sh"]

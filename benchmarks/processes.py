"""Server processes under measurement: started, pinned to a processor, and asked what they cost."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.ports import consecutive_free_ports

PAGE_SIZE = os.sysconf("SC_PAGESIZE")
# A program that is installed has its bytecode. Where the environment forbids Python to keep it, every start would
# measure the compiler instead, and only that of the broker: the standard library and uvloop have theirs.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
# Of clock_getcpuclockid(3), which Python does not offer: the kernel makes the clock of a process from its id.
_CPUCLOCK_SCHED = 2
SERVER_CPU, CLIENT_CPU = 0, min(1, (os.cpu_count() or 1) - 1)


class Server:
    """A child process that printed a line ending in its port."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.pid = process.pid
        self.port = port
        self._process = process

    def read_until(self, word: str) -> None:
        """Past the line of its output that has the word in it."""
        assert self._process.stdout is not None
        while word not in (line := self._process.stdout.readline()):
            assert line, f"the process ended before it said {word!r}"

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def kill(self) -> None:
        """Ends it at once; its data is of no use any more."""
        self._process.kill()

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE_SIZE


def cpu_seconds(pid: int) -> float:
    """Time on a processor of all threads of a process so far, also of those that ended, to the nanosecond."""
    return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)


@contextmanager
def running(
    command: Sequence[str], stderr: int | None = None, *, pinned: bool = True, **options: Any
) -> Iterator[Server]:
    """A server that says by its first line on which port it is ready; options are those of Popen."""
    prepare = _pin_server if pinned else None
    with started(command, stdout=subprocess.PIPE, stderr=stderr, preexec_fn=prepare, **options) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        port = int(line.split("bootstrap=")[-1].split()[0].rsplit(":", 1)[-1])
        yield Server(process, port)


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process from its exec until it is terminated at the end; options are those of Popen."""
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "text": True, "env": ENVIRONMENT}
    with subprocess.Popen(command, **quiet | options) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def broker(**settings: str) -> Iterator[Server]:
    """Ottla with a temporary data directory; settings are Kafka's names with underscores for dots."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        options = [word for key, value in settings.items() for word in ("--set", f"{key.replace('_', '.')}={value}")]
        with running(broker_command(directory, *options)) as server:
            yield server


@contextmanager
def fully_started_broker() -> Iterator[Server]:
    """Ottla when all is done that its start puts off: from here on it imports nothing by itself."""
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory,
        # The log comes by the same pipe as the line that says the broker is ready.
        running(broker_command(directory, "--log-level", "debug"), subprocess.STDOUT) as server,
    ):
        server.read_until("deferred start work done")
        yield server


def broker_command(directory: str, *options: str) -> list[str]:
    quiet = ("--log-level", "error")
    return [
        sys.executable,
        "-m",
        "ottla",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        directory,
        *quiet,
        *options,
    ]


@contextmanager
def baseline(name: str, *arguments: str, pinned: bool = True) -> Iterator[Server]:
    """One of `benchmarks.baselines`, in a process of its own as the broker is."""
    with running([sys.executable, "-m", "benchmarks.baselines", name, *arguments], pinned=pinned) as server:
        yield server


def pin_client() -> None:
    """Server and client each on a processor of their own: who wakes whom is then the same in every round."""
    os.sched_setaffinity(0, {CLIENT_CPU})


def touch_memory(size: int) -> None:
    """Makes the machine own that much of the memory it has free, for the second that follows.

    A virtual machine gets a page from its host when it first touches it, and may give it back soon after it is free:
    that costs several times as much as whatever is written there."""
    touch = f"import mmap\nmemory = mmap.mmap(-1, {size})\nfor page in range(0, {size}, {PAGE_SIZE}): memory[page] = 1"
    subprocess.run([sys.executable, "-c", touch], check=True)


def unpin() -> None:
    os.sched_setaffinity(0, range(os.cpu_count() or 1))


def free_port(in_a_row: int = 1) -> int:
    """The first of so many ports that are free."""
    return consecutive_free_ports(in_a_row)[0]


def _pin_server() -> None:
    os.sched_setaffinity(0, {SERVER_CPU})

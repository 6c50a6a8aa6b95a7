"""A broker in a process of its own, as a user starts it: for tests with real clients, kills and restarts."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

READY_WITHIN_S = 20
# A log of some segments is soon written.
SMALL_SEGMENTS = {"internal.segment.bytes.min": "1"}
# A broker that stops waits up to fifteen seconds for others to take over.
STOP_WITHIN_S = 40


class ServedBroker:
    """`ottla serve` on a free port with its data in `data_dir`; `restart` finds the same data on the same port.

    `arguments` are further words of the command line, `launcher` those before it."""

    def __init__(
        self,
        data_dir: Path,
        settings: dict[str, str] | None = None,
        *,
        listen: str = "127.0.0.1:0",
        arguments: Sequence[str] = (),
        launcher: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self.settings = settings or {}
        self.arguments = arguments
        self.launcher = launcher
        self.listen = listen
        self.bootstrap = ""
        self.stderr_path = data_dir.with_name(data_dir.name + ".stderr")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "ServedBroker":
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> None:
        """Starts the process without waiting for it: `wait_until_ready` has to follow."""
        values = SMALL_SEGMENTS | self.settings
        settings = [argument for key, value in values.items() for argument in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "ottla", "serve", "--data-dir", str(self.data_dir)]
        if "listeners" not in values:
            command += ["--listen", self.listen]
        with self.stderr_path.open("ab") as stderr:
            self._process = subprocess.Popen(
                [*self.launcher, *command, *self.arguments, *settings], stdout=subprocess.PIPE, stderr=stderr
            )

    def kill(self) -> None:
        """`kill -9`: nothing in the process gets to say goodbye."""
        self._signal(signal.SIGKILL)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Returns the exit status."""
        return self._signal(number)

    def pause(self) -> None:
        """SIGSTOP: the process is there, holds its sockets, and does nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def is_ready(self) -> bool:
        """Whether it has said so; what is yet to be read of that is left for `wait_until_ready`."""
        if self.bootstrap or self._process is None or self._process.stdout is None:
            return bool(self.bootstrap)
        said, _, _ = select.select([self._process.stdout], [], [], 0)
        return bool(said)

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    @property
    def stderr(self) -> str:
        return self.stderr_path.read_text(errors="replace")

    def __enter__(self) -> "ServedBroker":
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if self.is_running:
            self.stop()

    def _signal(self, number: int) -> int:
        assert self._process is not None, "the broker was not started"
        self._process.send_signal(number)
        try:
            status = self._process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the broker did not stop within {STOP_WITHIN_S} s:\n{self.stderr}") from None
        if self._process.stdout is not None:
            self._process.stdout.close()
        return status

    def wait_until_ready(self) -> None:
        self.bootstrap = self._read_ready_line()
        self.listen = self.bootstrap

    def _read_ready_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + READY_WITHIN_S
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0, deadline - time.monotonic()))
            byte = os.read(self._process.stdout.fileno(), 1) if ready else b""
            if not byte:
                self._process.kill()
                self._process.wait()
                raise AssertionError(f"the broker did not become ready; it printed {line!r} and:\n{self.stderr}")
            line += byte
        fields = dict(word.split("=", 1) for word in line.decode().split()[1:])
        return fields["bootstrap"]


@contextmanager
def served_broker(data_dir: Path, **settings: str) -> Iterator[ServedBroker]:
    """Settings are Kafka's property names with underscores for dots: `num_partitions="3"`."""
    with ServedBroker(data_dir, {key.replace("_", "."): value for key, value in settings.items()}) as broker:
        yield broker

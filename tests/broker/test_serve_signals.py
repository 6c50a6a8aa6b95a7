"""`ottla serve` as a process: which signals stop it, and how."""

import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.storage.log_directory import CLEAN_SHUTDOWN_FILE
from tests.ports import free_ports
from tests.served import STOP_WITHIN_S, ServedBroker


@pytest.fixture(autouse=True)
def signals_of_a_terminal() -> Iterator[None]:
    """A broker inherits what its parent ignores, and under nohup the tests ignore SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_stop_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    data_dir = tmp_path / "data"
    with ServedBroker(data_dir) as broker:
        assert broker.stop(number) == 0

    assert (data_dir / CLEAN_SHUTDOWN_FILE).exists()


def test_a_broker_whose_terminal_goes_stops_cleanly(tmp_path: Path) -> None:
    """The kernel sends SIGHUP, and whatever is written to the terminal from then on fails."""
    data_dir = tmp_path / "data"
    process, terminal = on_a_terminal("--data-dir", str(data_dir))
    with process:
        read_until_ready(terminal)

        os.close(terminal)

        assert process.wait(STOP_WITHIN_S) == 0
    assert (data_dir / CLEAN_SHUTDOWN_FILE).exists()


def test_a_broker_whose_reader_goes_serves_on(tmp_path: Path) -> None:
    """The ready line cannot be written; a client needs no such line."""
    reader, writer = os.pipe()
    os.close(reader)
    port = free_ports(1)[0]
    serve = [sys.executable, "-m", "ottla", "serve", "--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "d")]
    with subprocess.Popen(serve, stdout=writer) as process:
        os.close(writer)
        until_it_listens(port, process)

        process.terminate()

        assert process.wait(STOP_WITHIN_S) == 0


def test_a_broker_under_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", launcher=["nohup"]) as broker:
        os.kill(broker.pid, signal.SIGHUP)
        host, _, port = broker.bootstrap.rpartition(":")
        for _ in range(3):
            socket.create_connection((host, int(port))).close()

        assert broker.is_running
        assert broker.stop() == 0


def until_it_listens(port: int, process: subprocess.Popen[bytes]) -> None:
    while True:
        with suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"the broker has ended: {process.wait(0.05)}")


def on_a_terminal(*arguments: str) -> tuple[subprocess.Popen[bytes], int]:
    """A broker that leads a session on a terminal of its own, and the terminal's other end."""
    terminal, slave = pty.openpty()
    code = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    serve = [sys.executable, "-m", "ottla", "serve", "--listen", "127.0.0.1:0", *arguments]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *serve], stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    return process, terminal


def read_until_ready(terminal: int) -> None:
    printed = b""
    while b"startup_ms" not in printed:
        # The broker's end is closed when it ends by itself: that is an OSError.
        printed += os.read(terminal, 1000)

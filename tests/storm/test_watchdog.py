"""A client that hangs begins again, and one that has to stop ends."""

import signal
import subprocess
import sys
import threading

from tests.storm.clients.watchdog import HANGS, Watchdog

PROGRAM = """
import os, signal, sys, threading
from tests.storm.clients.watchdog import Watchdog, begin_again

stopping = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopping.set())
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
if "began" in os.environ:
    print("again", flush=True)
    stopping.wait()
    sys.exit(3)
os.environ["began"] = "1"
if sys.argv[1] == "stopping":
    stopping.set()
Watchdog(0.01, lambda: begin_again("client", stopping)).alive()
threading.Event().wait()
"""


def start(argument: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, argument], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_client_that_hangs_begins_again_and_can_be_stopped() -> None:
    process = start("running")
    assert process.stdout is not None
    assert process.stdout.readline() == "again\n"

    process.send_signal(signal.SIGTERM)

    _, errors = process.communicate()
    assert process.returncode == 3
    assert HANGS in errors


def test_client_that_hangs_at_its_end_ends() -> None:
    _, errors = (process := start("stopping")).communicate()

    assert process.returncode == 0
    assert HANGS not in errors


def test_client_that_is_alive_is_left_alone() -> None:
    hung = threading.Event()
    watchdog = Watchdog(60, hung.set)

    for _ in range(3):
        watchdog.alive()
    watchdog.stop()

    assert not hung.is_set()
    assert not any(isinstance(thread, threading.Timer) and thread.is_alive() for thread in _timers())


def _timers() -> list[threading.Thread]:
    """Those that are left, once the cancelled ones have seen it."""
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    for timer in timers:
        timer.join(10)
    return timers

"""A client that hangs begins again, and one that has to stop ends."""

import signal
import subprocess
import sys
import threading

from tests.storm.clients.watchdog import HANGS, Watchdog

# Its main thread hangs in C, where no handler of a signal runs.
PROGRAM = """
import ctypes, os, sys, threading
from tests.storm.clients.watchdog import Watchdog, begin_again, stopping_at_sigterm

stopping = stopping_at_sigterm()
if "began" in os.environ:
    print("again", flush=True)
    stopping.wait()
    sys.exit(3)
os.environ["began"] = "1"
print("hangs", flush=True)

def on_hang():
    if sys.argv[1] == "stopped":
        stopping.wait()
    begin_again("client")

Watchdog(0.01, on_hang).alive()
mutex = ctypes.create_string_buffer(64)
while True:
    ctypes.CDLL(None).pthread_mutex_lock(mutex)
"""


def start(argument: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, argument], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_client_that_hangs_begins_again_and_can_be_stopped() -> None:
    process = start("running")
    assert process.stdout is not None
    assert [process.stdout.readline(), process.stdout.readline()] == ["hangs\n", "again\n"]

    process.send_signal(signal.SIGTERM)

    _, errors = process.communicate()
    assert process.returncode == 3
    assert HANGS in errors


def test_client_that_is_stopped_while_it_hangs_ends() -> None:
    process = start("stopped")
    assert process.stdout is not None
    assert process.stdout.readline() == "hangs\n"

    process.send_signal(signal.SIGTERM)

    _, errors = process.communicate()
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

"""How the process of a command ends."""

import subprocess
import sys

import pytest

WITHIN_S = 30
PROGRAM = """
import atexit, sys, threading
from concurrent.futures import ThreadPoolExecutor
from ottla.cli import main

def ends() -> None:
    atexit.register(print, "put off until the end")
    is_ending = threading.Event()
    ThreadPoolExecutor(1).submit(lambda: is_ending.wait() and print("a thread has done its work"))
    threading._register_atexit(is_ending.set)
    print("a command")
    {ends}

main.main = ends
main.command()
"""


@pytest.mark.parametrize(
    ("ends", "status", "said"),
    [
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('a sentence')", 1, "a sentence\n"),
        ("", 0, ""),
    ],
)
def test_an_end_leaves_nothing_undone(ends: str, status: int, said: str) -> None:
    words = [sys.executable, "-c", PROGRAM.format(ends=ends)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WITHIN_S)

    assert (done.returncode, done.stderr) == (status, said)
    assert done.stdout.splitlines() == ["a command", "a thread has done its work", "put off until the end"]


def test_an_error_of_ours_shows_its_traceback() -> None:
    words = [sys.executable, "-c", PROGRAM.format(ends="raise KeyError('unknown')")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WITHIN_S)

    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "KeyError: 'unknown'")


def test_output_that_is_not_read_is_no_error() -> None:
    words = f"{sys.executable} -m ottla --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=WITHIN_S)

    assert (done.returncode in (0, 1), done.stderr) == (True, "")

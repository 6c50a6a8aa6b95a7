"""How the process of a command ends."""

import os
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize(("ends", "status"), [("sys.exit()", 1), ("sys.exit(3)", 3)])
def test_output_that_does_not_fit_on_the_disk_is_an_error(ends: str, status: int) -> None:
    words = [sys.executable, "-c", PROGRAM.format(ends=ends)]
    # Python writes at the end what it has kept, unless its surroundings ask for all at once.
    surroundings = {**os.environ, "PYTHONUNBUFFERED": ""}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, env=surroundings, stdout=full, stderr=subprocess.PIPE, text=True, timeout=WITHIN_S)

    said = "ottla: the output is not whole: No space left on device\n"
    assert (done.returncode, done.stderr) == (status, said)


def test_output_that_is_not_read_is_an_error_without_words() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "ottla", "--help"]
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=WITHIN_S)
    os.close(writer)

    assert (done.returncode, done.stderr) == (1, "")


def test_a_command_without_an_output_ends_well() -> None:
    words = ["sh", "-c", f"exec {sys.executable} -m ottla --version >&-"]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=WITHIN_S)

    assert (done.returncode, done.stderr) == (0, "")

"""Apache Kafka's own command-line tools, fetched with Maven and run on this machine's Java, and programs of ours."""

import atexit
import functools
import hashlib
import struct
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks import apache_kafka
from benchmarks.figure import NotMeasured
from tests.locks import alone

TOOL_WITHIN_S = 90
OPTIONS = apache_kafka.SHORT_LIFE
DRIVER = Path(__file__).parent / "java" / "Tools.java"


@functools.cache
def classpath() -> str:
    """The jars of Kafka's tools; skips the calling test where Java, Maven or the jars cannot be had."""
    # Maven's local repository is not made for two that fill it.
    with alone("maven"):
        try:
            return apache_kafka.classpath()
        except NotMeasured as reason:
            pytest.skip(str(reason))


def program(source: Path, jars: str, options: Sequence[str] = ()) -> list[str]:
    """The command of a program of one file. Java would compile it at each start, for two seconds: it is done once for
    all processes. Raises CalledProcessError."""
    key = hashlib.sha256(source.read_bytes() + jars.encode()).hexdigest()[:16]
    classes = Path.home() / ".m2" / f"ottla-{source.stem}-{key}"
    with alone("javac"):
        if not classes.exists():
            classes.parent.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=classes.parent) as made:
                compiler = ["java", *OPTIONS, "--module", "jdk.compiler/com.sun.tools.javac.Main"]
                subprocess.run([*compiler, "-cp", jars, "-d", f"{made}/classes", source], check=True)
                Path(made, "classes").rename(classes)
    return ["java", *OPTIONS, *options, "-cp", f"{classes}:{jars}", source.stem]


class Ended(NamedTuple):
    """How a tool did."""

    status: int
    printed: str
    complained: str
    """What it printed to standard error."""


class Tools:
    """Runs tools one after another in one virtual machine, whose start costs more than they do (tests/java/Tools.java).
    It ends with one whose threads go on. `java`: further options of it. Skips the calling test where there is no Java,
    no Maven, or no way to the jars."""

    def __init__(self, java: Sequence[str] = ()) -> None:
        self._one_at_a_time = threading.Lock()
        self._process = subprocess.Popen(
            program(DRIVER, classpath(), java),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def run(self, main_class: str, *arguments: str | Path, stdin: str = "") -> Ended:
        """Raises TimeoutError, and ends the virtual machine, if the tool has not ended after `TOOL_WITHIN_S`."""
        assert self._process.stdin is not None
        words = [word.encode() for word in (stdin, main_class, *map(str, arguments))]
        question = struct.pack(">i", len(words)) + b"".join(struct.pack(">i", len(word)) + word for word in words)
        with self._one_at_a_time:
            too_late = threading.Timer(TOOL_WITHIN_S, self._process.kill)
            too_late.start()
            try:
                self._process.stdin.write(question)
                self._process.stdin.flush()
                status, threads_left = self._read_int(), self._read_int()
                ended = Ended(status, self._read_output(), self._read_output())
                if threads_left:
                    self.close()
                return ended
            except (OSError, struct.error):
                self.close()
                raise TimeoutError(f"{main_class} has not ended within {TOOL_WITHIN_S} s, or Java did") from None
            finally:
                too_late.cancel()

    def _read_int(self) -> int:
        assert self._process.stdout is not None
        number: int = struct.unpack(">i", self._process.stdout.read(4))[0]
        return number

    def _read_output(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.read(self._read_int()).decode()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def threads(self) -> set[str]:
        """Of the virtual machine, by the first 15 characters of their names; none of one that has ended."""
        return {task.read_text().strip() for task in Path(f"/proc/{self._process.pid}/task").glob("*/comm")}

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


_of_options: dict[tuple[str, ...], Tools] = {}


def tools(java: Sequence[str] = ()) -> Tools:
    """Those with such options that this process has, to its end. Other ones take the place of some that have ended."""
    found = _of_options.get(tuple(java))
    if found is None or not found.is_running:
        found = _of_options[tuple(java)] = Tools(java)
        atexit.register(found.close)
    return found


def run_tool(
    main_class: str, *arguments: str | Path, stdin: str = "", check: bool = True, java: Sequence[str] = ()
) -> str:
    """Runs one of Kafka's tools to its end and returns what it printed to standard output. `java`: further options of
    the virtual machine."""
    ended = tools(java).run(main_class, *arguments, stdin=stdin)
    if check:
        assert ended.status == 0, f"{main_class} failed:\n{ended.printed[-3000:]}\n{ended.complained[-3000:]}"
    return ended.printed

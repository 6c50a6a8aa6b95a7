"""Clients of other languages that do one step after another as a test says, each in a process of its own."""

import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tests.java_tools import classpath, program

STEP_WITHIN_S = 60
TRANSACTION_TIMEOUT_MS = 40_000
"""The default of franz-go."""
JAVA = Path(__file__).parents[1] / "java" / "Stepped.java"
GO = Path(__file__).parent / "go"


class SteppedClient:
    """A transactional producer of one topic, and a reader of what is committed there (tests/java/Stepped.java)."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def write(self, value: str) -> None:
        """In the open transaction, or in a new one. Returns when the broker has acknowledged it."""
        assert self._step(f"write {value}") == "written"

    def refusal(self, value: str) -> str:
        """As `write`, of a record that the broker refuses. Returns how the client calls the reason."""
        refused, _, reason = self._step(f"write {value}").partition(" ")
        assert refused == "refused"
        return reason

    def end(self, *, commit: bool) -> None:
        assert self._step("commit" if commit else "abort") == "ended"

    def read(self, count: int) -> list[bytes]:
        """The first committed values, which have no spaces."""
        return [value.encode() for value in self._step(f"read {count}").split(" ")]

    def _step(self, line: str) -> str:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        too_late = threading.Timer(STEP_WITHIN_S, process.kill)
        too_late.start()
        try:
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        finally:
            too_late.cancel()
        if not answer:
            _, complaints = process.communicate()
            raise AssertionError(f"the client has ended at {line!r}: {complaints[-3000:]}")
        return answer.rstrip("\n")

    def __enter__(self) -> "SteppedClient":
        return self

    def __exit__(self, *raised: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()


def java_client(
    bootstrap: str, topic: str, transactional_id: str, transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
) -> SteppedClient:
    """Of Apache Kafka; skips the calling test where there is no Java, no Maven, or no way to the jars."""
    return SteppedClient([*program(JAVA, classpath()), bootstrap, topic, transactional_id, str(transaction_timeout_ms)])


def go_client(
    programs: Path,
    bootstrap: str,
    topic: str,
    transactional_id: str,
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
) -> SteppedClient:
    """franz-go; `programs` is where the sources in `GO` were built."""
    return SteppedClient([programs / "stepped", bootstrap, topic, transactional_id, str(transaction_timeout_ms)])

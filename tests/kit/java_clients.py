"""Kafka's Java clients in one virtual machine beside the tests (tests/java/Clients.java)."""

import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.java_tools import classpath, program

SOURCE = Path(__file__).parents[1] / "java" / "Clients.java"
SAID_WITHIN_S = 90


class JavaClients:
    """Skips the calling test where there is no Java, no Maven, or no way to Kafka's jars."""

    def __init__(self) -> None:
        command = program(SOURCE, classpath())
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._said: list[str] = []
        self._heard = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._heard:
                self._said.append(line.rstrip("\n"))
                self._heard.notify_all()

    def said(self, name: str) -> list[str]:
        """All that was said of a client, in its order: `read VALUE`, `sent PARTITION OFFSET`, `error EXCEPTION`."""
        with self._heard:
            return [line[len(name) + 1 :] for line in self._said if line.startswith(f"{name} ")]

    def send(self, name: str, topic: str, value: str) -> str:
        """`sent PARTITION OFFSET`, or `failed EXCEPTION`."""
        return self._ask("send", name, topic, value, answers=("sent", "failed"))

    def create_topics(self, name: str, partitions: Mapping[str, int], config: Mapping[str, object]) -> str:
        """By one request of an admin client: `created`, or `failed EXCEPTION`."""
        wanted = ",".join(f"{topic}:{count}" for topic, count in partitions.items())
        return self._ask("topics", name, wanted, *_words(config), answers=("created", "failed"))

    @contextmanager
    def producer(self, name: str, config: Mapping[str, object]) -> Iterator[None]:
        with self._client("producer", name, *_words(config)):
            yield

    @contextmanager
    def member(self, name: str, topic: str, config: Mapping[str, object]) -> Iterator[None]:
        """Of the group that the config names; it polls in a thread, and leaves the group at the end."""
        with self._client("consumer", name, topic, *_words(config)):
            yield

    @contextmanager
    def _client(self, kind: str, name: str, *words: str) -> Iterator[None]:
        self._ask(kind, name, *words, answers=("made",))
        try:
            yield
        finally:
            self._ask("close", name, answers=("closed",))

    def _ask(self, command: str, name: str, *words: str, answers: Sequence[str]) -> str:
        assert self._process.stdin is not None
        with self._heard:
            before = len(self.said(name))
            self._process.stdin.write("\t".join((command, name, *words)) + "\n")
            self._process.stdin.flush()
            found: list[str] = []

            def is_answered() -> bool:
                found[:] = [each for each in self.said(name)[before:] if each.split()[0] in answers]
                return bool(found)

            assert self._heard.wait_for(is_answered, SAID_WITHIN_S), f"no answer to {command} of {name}: {self._said}"
            return found[0]

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(SAID_WITHIN_S)
        self._reader.join()


def _words(config: Mapping[str, object]) -> list[str]:
    return [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in config.items()]

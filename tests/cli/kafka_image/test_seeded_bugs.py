"""Bugs of the image that its tests must find, seeded one at a time (KT-18, KT-19 in docs/seeded-bugs.md)."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.cli.kafka_image import environment
from tests.cli.kafka_image import test_environment, test_serving

Patch = pytest.MonkeyPatch

# Its lines are there when the process is, and its listeners do not accept as long as the test looks.
READY_AT_ONCE = """
import asyncio
from ottla.broker.broker import Broker
from ottla.cli.kafka_image.serving import KafkaImage
from ottla.cli.main import main

async def prints_first(self):
    print("\\n".join(said), flush=True)
    await asyncio.get_running_loop().create_future()

said = ["[BrokerLifecycle id=5] Transitioning from RECOVERY to RUNNING", "[KafkaServer id=5] started",
        "Kafka Server started"]
Broker.start = prints_first
KafkaImage.ready_lines = lambda self: []
main()
"""


def reads_two_underscores_first(patch: Patch) -> None:
    def name(variable: str) -> str:
        lowered = variable.removeprefix(environment.PREFIX).lower()
        return lowered.replace("__", "\0").replace("_\0", "-").replace("\0", "_").replace("_", ".")

    patch.setattr(test_environment, "property_name", name)


def removes_every_prefix(patch: Patch) -> None:
    def name(variable: str) -> str:
        return environment.property_name(variable.replace(environment.PREFIX, ""))

    patch.setattr(test_environment, "property_name", name)


def names(variable: str, name: str) -> Callable[[], None]:
    return lambda: test_environment.test_names_follow_kafkas_rules(variable, name)


@pytest.mark.parametrize(
    ("bug", "found_by"),
    [
        (reads_two_underscores_first, names("KAFKA_A___B", "a-b")),
        (removes_every_prefix, names("KAFKA_A_KAFKA_B", "a.kafka.b")),
    ],
)
def test_seeded_bug_of_names_is_found(monkeypatch: Patch, bug: Callable[[Patch], None], found_by: object) -> None:
    """KT-18."""
    assert callable(found_by)
    found_by()
    bug(monkeypatch)

    with pytest.raises(AssertionError):
        found_by()


def test_lines_before_the_listeners_are_found(monkeypatch: Patch, tmp_path: Path) -> None:
    """KT-19."""

    def command(*arguments: str) -> list[str]:
        return [sys.executable, "-c", READY_AT_ONCE, "serve", "--kafka-env", *arguments]

    monkeypatch.setattr(test_serving, "command", command)

    with pytest.raises(AssertionError, match=r"\[1, 1\] == \[0, 0\]"):
        test_serving.test_the_lines_come_once_when_all_listeners_accept(tmp_path)

"""The worker's side of `--ottla-shared`: which tests get the brokers that all workers share, and what they may ask."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import pytest

from ottla.testing.fixture_options import FixtureOptions
from ottla.testing.fixture_runs import AuditedTest, FixtureRun, from_set_up_to_verdict
from ottla.testing.handle import Kafka
from ottla.testing.remote.asking import RemoteControl
from ottla.testing.remote.handle import RemoteKafka
from ottla.testing.remote.world import RemoteRun

NAMES: Final = "names"
FRESH: Final = "fresh"
INSTEAD: Final = 'take isolation="fresh", which is a broker of its own'


class SharedBrokers:
    """Those that the session has started which has started this worker."""

    def __init__(self, given: Mapping[str, str], options: FixtureOptions) -> None:
        """`given`: `url`, `token` and `prefix`; `options`: of the session."""
        self._given = given
        self._options = options

    @cached_property
    def control(self) -> RemoteControl:
        given = self._given
        return RemoteControl(given["url"], given["token"], prefix=given["prefix"], deadline_s=self._options.deadline)

    def kafka(self) -> Kafka:
        return RemoteKafka(self.control)

    def serve(self, node: pytest.Item, options: FixtureOptions) -> bool:
        """Whether the test has them; else it has a broker of its own, in this process."""
        return options.key == self._options.key and _asked_isolation(node) != FRESH

    @contextmanager
    def running(self, node: pytest.Item, options: FixtureOptions, audited: list[AuditedTest]) -> Generator[FixtureRun]:
        why = _why_not(node, options)
        if why is not None:
            pytest.fail(f"{why} (--ottla-shared): {INSTEAD}", pytrace=False)
        options = replace(options, isolation=NAMES)
        with from_set_up_to_verdict(RemoteRun(self.control, node, options, audited)) as run:
            yield run


def _asked_isolation(node: pytest.Item) -> str:
    """By the marker; what the session has is forced to NAMES."""
    given: list[Any] = [each.kwargs["isolation"] for each in node.iter_markers("kafka") if "isolation" in each.kwargs]
    return str(given[0]) if given else NAMES


def _why_not(node: pytest.Item, options: FixtureOptions) -> str | None:
    asked = _asked_isolation(node)
    if asked != NAMES:
        return f"isolation={asked!r} empties brokers that workers share"
    if options.clock != "real":
        return f"clock={options.clock!r} moves the clock of brokers that workers share"
    if options.seed is not None:
        return "a seed is for all workers that share the brokers"
    if options.topics:
        return (
            f"the marker's topics {', '.join(options.topics)} have no worker's prefix, as those of kafka_topic() have"
        )
    return None

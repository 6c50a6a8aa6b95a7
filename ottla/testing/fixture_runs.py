"""What all fixtures do for one test, wherever its brokers are: names of its own, and the verdict at its end."""

import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from ottla.testing.audit.auditor import leftover
from ottla.testing.audit.findings import AuditFinding, FindingKind
from ottla.testing.fixture_options import FixtureOptions
from ottla.testing.handle import Kafka
from ottla.testing.report import Section
from ottla.testing.verdicts import audited, warn_of

if TYPE_CHECKING:
    from ottla.testing.async_handle import KafkaAsync

AuditedTest = tuple[str, str, str]
"""A test that ended with a finding: its id, the kind and the line of the finding."""
NAME_LENGTH_MAX: Final = 120
HASH_SIZE: Final = 4
"""In bytes: two tests whose names show no difference have one hash in one of four billion pairs."""
SESSION: Final = os.urandom(8)
"""In names at brokers that run already, which may have those of an earlier session."""
_name_numbers: Final = pytest.StashKey["count[int]"]()
"""Of the calls of one test, which go on where it is run again."""


class Leaks(NamedTuple):
    """At the end of a test, each in a sentence."""

    connections: Sequence[str]
    """That are open."""
    opened_here: Collection[str]
    """Those that were opened in the test."""


class FixtureRun(ABC):
    """One test and its brokers."""

    __test__ = False

    def __init__(self, node: pytest.Item, options: FixtureOptions, audited: list[AuditedTest]) -> None:
        """`audited` gets what is found at the end."""
        self.options = options
        self.has_failed = False
        self.has_skipped = False
        """Or failed as it was expected to."""
        self.groups: list[str] = []
        self._node = node
        self._all_audited = audited

    @abstractmethod
    def kafka(self) -> Kafka: ...

    @abstractmethod
    def kafka_async(self) -> "KafkaAsync": ...

    @abstractmethod
    def shown(self, *, is_full: bool) -> list[Section]:
        """What there is to say of a failure."""

    def sections(self, report: pytest.TestReport, *, is_full: bool) -> list[Section]:
        """What the report of a phase that failed shows."""
        del report
        return self.shown(is_full=is_full)

    def set_up(self) -> None:
        """What the marker says should be there at the begin. Raises what a wrong one raises."""
        kafka, options = self.kafka(), self.options
        if options.clock != "real":
            kafka.clock.freeze(options.clock if isinstance(options.clock, datetime) else None)
        for name, partitions in options.topics.items():
            kafka.create_topic(name, partitions)
        if options.faults is not None:
            kafka.faults.load(self._node.path.parent / options.faults)

    def give_up(self, error: BaseException) -> None:
        """The end of a test whose set-up has failed, or of a block that has: there is nothing to judge."""
        del error
        self.has_failed = True
        with suppress(pytest.fail.Exception):
            self.finish()

    def finish(self) -> None:
        """The end, and the verdict."""
        if self.options.clock != "real" and self.options.isolation == "names":
            # Nothing else is given back there, but no other test has asked for this time.
            self.kafka().clock.reset()
        self.end()

    @abstractmethod
    def end(self) -> None:
        """Empties what the options say, and reports what was left open."""

    def new_name(self, kind: str) -> str:
        """Unique to test, worker and call: the test's name as far as Kafka allows it, and a hash of its whole id."""
        node = self._node
        words = re.sub(r"[^A-Za-z0-9_.-]+", "-", node.name).strip("-")[:NAME_LENGTH_MAX]
        salt = SESSION if node.config.getoption("ottla_control") else b""
        known_by = blake2b(node.nodeid.encode(errors="replace"), digest_size=HASH_SIZE, salt=salt).hexdigest()
        worker = getattr(node.config, "workerinput", {}).get("workerid")
        numbers = node.stash.setdefault(_name_numbers, count(1))
        return "-".join(filter(None, (worker, words, known_by, f"{kind}{next(numbers)}")))

    def new_topic(self, partitions: int | None = None, **configs: object) -> str:
        name = self.new_name("topic")
        self.kafka().create_topic(name, partitions, configs={key.replace("_", "."): configs[key] for key in configs})
        return name

    def new_group(self) -> str:
        name = self.new_name("group")
        self.groups.append(name)
        return name

    def conclude(self, found: list[AuditFinding], unused: Sequence[str], leaks: Leaks, left: Sequence[str]) -> None:
        """`unused` rules, connections that are open and groups that are `left` with members, each in a sentence.
        Fails the test where the options say so, once and with all that is wrong."""
        found = [
            *found,
            *leftover(FindingKind.L1, leaks.connections),
            *leftover(FindingKind.L2, left),
            *leftover(FindingKind.L3, unused),
        ]
        self._all_audited += [(self._node.nodeid, each.kind.name, each.lines()[0]) for each in found]
        wrong = [*self._judged_leaks(leaks, left), *unused, *audited(found, self.options.audit)]
        if wrong:
            pytest.fail("\n".join(wrong), pytrace=False)

    def judged_unused(self, sentences: list[str]) -> list[str]:
        """What is wrong with the rules of a test that has passed: one that injects no fault passes for another reason
        than it says."""
        if self.has_skipped:
            return []
        if self.options.unused_faults == "error":
            return [] if self.has_failed else sentences
        if self.options.unused_faults == "warn":
            warn_of(sentences)
        return []

    def _judged_leaks(self, leaks: Leaks, left: Sequence[str]) -> list[str]:
        """What fails the test. Connections that it has not opened, as of a client of an earlier test that has connected
        again, are named and no more than that."""
        if self.options.leaks == "ignore":
            return []
        own = [*(each for each in leaks.connections if each in leaks.opened_here), *left]
        wrong = own if self.options.leaks == "error" else []
        warn_of(each for each in (*leaks.connections, *left) if each not in wrong)
        return wrong


@contextmanager
def from_set_up_to_verdict(run: FixtureRun) -> Generator[FixtureRun]:
    try:
        run.set_up()
    except BaseException as error:
        run.give_up(error)
        raise
    try:
        yield run
    except BaseException as error:
        run.give_up(error)
        raise
    run.finish()


def hold(node: pytest.Item, runs: tuple[FixtureRun, ...]) -> None:
    """The brokers of a test that has failed, until Enter is pressed or standard input ends."""
    addresses = [run.kafka().bootstrap for run in runs]
    if not addresses:
        return
    capture: Any = node.config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.suspend(in_=True)
    try:
        print(f"\nottla: {node.nodeid} has failed; its brokers are held at {' and '.join(addresses)}")
        print("ottla: Enter lets pytest go on", flush=True)
        sys.stdin.readline()
    finally:
        if capture is not None:
            capture.resume()

"""Brokers for tests without pytest: a context for any program, and a base class for unittest."""

import sys
import unittest
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, TypedDict, Unpack

from ottla.testing.async_handle import KafkaAsync
from ottla.testing.handle import Kafka
from ottla.testing.report import ReportMark
from ottla.testing.testbed import Testbed
from ottla.testing.verdicts import end_scope, shown_after_failure, warn_of_open_connections

AUDIT_DEFAULT: Final = "errors"


class TestbedOptions(TypedDict, total=False):
    """Options, all of them keywords:

    brokers: how many; 1 by default.
    settings: Kafka's server properties, which go before those of the profile.
    profile: `test` for groups that form at once and small internal topics, or `kafka` for Kafka's defaults untouched.
    topics: names of topics and how many partitions each has; they are there at the start and after a reset.
    data: the directory to make the data directory in; by default memory where there is room, else the temporary one.
    deadline: of waits, in seconds; 5 by default.
    fault_seed: a number that the chances and jitter of fault rules follow from.
    audit: what the audit makes errors at the end: `errors`, the default, `all`, or `off`, to record nothing.
    unsynced: True for disks that can lose what was not synced (`kafka.disk(2).lose_unsynced()`), of several brokers.
    """

    brokers: int
    settings: dict[str, object]
    profile: str
    topics: dict[str, int]
    data: str | Path
    deadline: float
    fault_seed: int
    audit: str
    unsynced: bool


class BrokerContext:
    """`with` gives a `Kafka`, `async with` a `KafkaAsync`; the end of either stops the broker."""

    def __init__(self, bed: Testbed, audit: str) -> None:
        """`audit`: what it makes errors."""
        self._bed = bed
        self._audit = audit

    def __enter__(self) -> Kafka:
        self._start()
        return Kafka(self._bed)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(value)

    async def __aenter__(self) -> KafkaAsync:
        # It blocks for the tenth of a second that a broker takes to start, and as long as one takes to stop.
        self._start()
        return KafkaAsync(self._bed)

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(value)

    def _start(self) -> None:
        self._bed.start()
        self._mark = ReportMark.now(self._bed)

    def _end(self, error: BaseException | None) -> None:
        bed, wrong = self._bed, list[str]()
        try:
            if error is None:
                wrong = end_scope(bed, self._audit)
            elif isinstance(error, Exception):
                error.add_note(shown_after_failure(bed, self._mark))
        finally:
            bed.stop()
        if wrong:
            raise AssertionError("\n".join(wrong))


def broker(**options: Unpack[TestbedOptions]) -> BrokerContext:
    """A broker for the body of a `with` or an `async with`. Raises ConfigError for a wrong option, on entering
    StartError, and on leaving AssertionError where a rule never acted or the audit found errors. An exception of the
    body gets a note with what a failing test shows."""
    return BrokerContext(Testbed(**options), options.get("audit", AUDIT_DEFAULT))


class KafkaTestCase(unittest.TestCase):
    """A broker for the tests of a class, which is emptied before each: `self.kafka`, and `self.kafka_async` for
    coroutines, as of `unittest.IsolatedAsyncioTestCase`.

    A test that has passed fails where a rule never acted or the audit found errors; a connection that it has left open
    is a warning; one that has failed writes to standard error what it shows of Kafka."""

    kafka_options: ClassVar[dict[str, Any]] = {}
    """Those of `ottla.testing.broker`."""
    kafka: ClassVar[Kafka]
    kafka_async: ClassVar[KafkaAsync]
    _bed: ClassVar[Testbed]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        bed = Testbed(**cls.kafka_options)
        bed.start()
        cls.addClassCleanup(bed.stop)
        cls._bed, cls.kafka, cls.kafka_async = bed, Kafka(bed), KafkaAsync(bed)

    def setUp(self) -> None:
        super().setUp()
        self.kafka.reset()
        self._bed.wire.test = self.id().rpartition(".")[2]
        # The first that is added is the last to run: behind those by which a test closes its clients.
        self.addCleanup(self._judge, ReportMark.now(self._bed))

    def _judge(self, mark: ReportMark) -> None:
        bed, has_failed, has_ended_early = self._bed, *self._come_to()
        if has_failed:
            print(shown_after_failure(bed, mark), file=sys.stderr)
        warn_of_open_connections(bed)
        wrong = end_scope(bed, self.kafka_options.get("audit", AUDIT_DEFAULT))
        bed.wire.test = ""
        if wrong and not has_failed and not has_ended_early:
            self.fail("\n".join(wrong))

    def _come_to(self) -> tuple[bool, bool]:
        """Whether the test has failed, and whether it was skipped or failed as expected. unittest has no public place
        that says so while the test runs: `result` is its `TestResult`, or the item of pytest."""
        outcome: Any = getattr(self, "_outcome", None)
        result = getattr(outcome, "result", None)
        has_failed = any(
            getattr(test, "test_case", test) is self
            for name in ("failures", "errors")
            for test, _ in getattr(result, name, ())
        )
        has_been_skipped = any(test is self for test, _ in getattr(result, "skipped", ()))
        of_pytest: Any = getattr(result, "_excinfo", None) or ()
        skips = [each.typename == "Skipped" for each in of_pytest]
        is_expected = getattr(outcome, "expectedFailure", None) is not None
        return has_failed or False in skips, has_been_skipped or is_expected or True in skips

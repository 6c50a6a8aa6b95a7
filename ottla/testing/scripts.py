"""Brokers for tests without pytest: a context for any program, and a base class for unittest."""

import unittest
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, TypedDict, Unpack

from ottla.testing.async_handle import KafkaAsync
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed


class TestbedOptions(TypedDict, total=False):
    """Options, all of them keywords:

    brokers: how many; 1 by default.
    settings: Kafka's server properties, which go before those of the profile.
    profile: `test` for groups that form at once and small internal topics, or `kafka` for Kafka's defaults untouched.
    topics: names of topics and how many partitions each has; they are there at the start and after a reset.
    data: the directory to make the data directory in; by default memory where there is room, else the temporary one.
    deadline: of waits, in seconds; 5 by default.
    fault_seed: a number that the chances and jitter of fault rules follow from.
    audit: off, to record nothing for `audit()`.
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

    def __init__(self, bed: Testbed) -> None:
        self._bed = bed

    def __enter__(self) -> Kafka:
        self._bed.start()
        return Kafka(self._bed)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bed.stop()

    async def __aenter__(self) -> KafkaAsync:
        # It blocks for the tenth of a second that a broker takes to start, and as long as one takes to stop.
        self._bed.start()
        return KafkaAsync(self._bed)

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bed.stop()


def broker(**options: Unpack[TestbedOptions]) -> BrokerContext:
    """A broker for the body of a `with` or an `async with`. Raises ConfigError for a wrong option, and on entering
    StartError."""
    return BrokerContext(Testbed(**options))


class KafkaTestCase(unittest.TestCase):
    """A broker for the tests of a class, which is emptied before each: `self.kafka`, and `self.kafka_async` for
    coroutines, as of `unittest.IsolatedAsyncioTestCase`."""

    kafka_options: ClassVar[dict[str, Any]] = {}
    """Those of `ottla.testing.broker`."""
    kafka: ClassVar[Kafka]
    kafka_async: ClassVar[KafkaAsync]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        bed = Testbed(**cls.kafka_options)
        bed.start()
        cls.addClassCleanup(bed.stop)
        cls.kafka, cls.kafka_async = Kafka(bed), KafkaAsync(bed)

    def setUp(self) -> None:
        super().setUp()
        self.kafka.reset()

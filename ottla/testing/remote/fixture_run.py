"""A test of the fixtures whose brokers are in another process."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final

import pytest

from ottla.testing.async_handle import KafkaAsync
from ottla.testing.control.documents import ControlReport, TestEnd
from ottla.testing.fixture_options import FixtureOptions
from ottla.testing.fixture_runs import AuditedTest, FixtureRun
from ottla.testing.handle import Kafka
from ottla.testing.remote.asking import RemoteControl
from ottla.testing.remote.async_handle import RemoteKafkaAsync
from ottla.testing.remote.handle import RemoteKafka
from ottla.testing.report import Section

NAME_LENGTH_MAX: Final = 1000


class RemoteRun(FixtureRun):
    def __init__(
        self,
        control: RemoteControl,
        node: pytest.Item,
        options: FixtureOptions,
        audited: list[AuditedTest],
        emptied: Callable[[], list[str]] = list,
    ) -> None:
        """`emptied` does what the isolation wants at the end, and gives what was open."""
        super().__init__(node, options, audited)
        self._control = control
        self._emptied = emptied
        self._name = node.name[:NAME_LENGTH_MAX]
        control.ask("POST", "/v1/tests", {"name": self._name, "phase": "begin", "audit": options.audit})

    def kafka(self) -> Kafka:
        return RemoteKafka(self._control)

    def kafka_async(self) -> KafkaAsync:
        return RemoteKafkaAsync(self._control)

    def sections(self, report: pytest.TestReport, *, is_full: bool) -> list[Section]:
        del report
        shown: ControlReport = self._control.read(ControlReport, "GET", f"/v1/report?full={int(is_full)}")
        return [(each.title, each.text) for each in shown.sections]

    def end(self) -> None:
        mark = {"name": self._name, "phase": "end", "clear_faults": True, "groups": self.groups}
        ended: TestEnd = self._control.read(TestEnd, "POST", "/v1/tests", mark)
        left: Sequence[str] = () if self.options.isolation == "fresh" else ended.left
        unused = self.judged_unused(list(ended.unused_faults))
        self.conclude([each.finding() for each in ended.findings], unused, self._emptied(), left)


@contextmanager
def running_remotely(run: RemoteRun, node: pytest.Item, options: FixtureOptions) -> Generator[RemoteRun]:
    """From what the marker says should be there to the verdict."""
    kafka = run.kafka()
    try:
        if options.clock != "real":
            kafka.clock.freeze(options.clock if isinstance(options.clock, datetime) else None)
        for name, partitions in options.topics.items():
            kafka.create_topic(name, partitions)
        if options.faults is not None:
            kafka.faults.load(node.path.parent / options.faults)
        yield run
    finally:
        run.end()

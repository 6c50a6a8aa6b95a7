"""A test whose brokers are in another process, and the world of these: all of it is asked over HTTP."""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from ottla.testing import isolation
from ottla.testing.async_handle import KafkaAsync
from ottla.testing.control.client import part
from ottla.testing.control.documents import (
    ConnectionList,
    ControlReport,
    Emptied,
    RestoreDocument,
    SnapshotNames,
    TestEnd,
)
from ottla.testing.coverage import SECTIONS, Coverage
from ottla.testing.fixture_options import FixtureOptions
from ottla.testing.fixture_runs import AuditedTest, FixtureRun, Leaks, from_set_up_to_verdict
from ottla.testing.handle import Kafka
from ottla.testing.remote.asking import RemoteControl
from ottla.testing.remote.async_handle import RemoteKafkaAsync
from ottla.testing.remote.handle import RemoteKafka
from ottla.testing.report import Section
from ottla.testing.testbed import EMPTY
from ottla.testing.worker import NotRunningError
from ottla.testing.worlds import describe_leak

NAME_LENGTH_MAX: Final = 1000


class RemoteRun(FixtureRun):
    """One test."""

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

    def shown(self, *, is_full: bool) -> list[Section]:
        shown: ControlReport = self._control.read(ControlReport, "GET", f"/v1/report?full={int(is_full)}")
        return [(each.title, each.text) for each in shown.sections]

    def end(self) -> None:
        mark = {"name": self._name, "phase": "end", "clear_faults": True, "groups": self.groups}
        ended: TestEnd = self._control.read(TestEnd, "POST", "/v1/tests", mark)
        left: Sequence[str] = () if self.options.isolation == "fresh" else ended.left
        unused = self.judged_unused(list(ended.unused_faults))
        leaks = Leaks(self._emptied(), ended.leaks)
        self.conclude([each.finding() for each in ended.findings], unused, leaks, left)


class RemoteWorld:
    """Of `isolation.World`."""

    def __init__(self, control: RemoteControl, coverage: Coverage | None, contents: str | None) -> None:
        """`coverage` gets what is counted, at the end. `contents`: as of `isolation.World`."""
        self.control = control
        self.contents = contents
        self._coverage = coverage

    @property
    def is_running(self) -> bool:
        return True

    def kafka(self) -> Kafka:
        return RemoteKafka(self.control)

    @contextmanager
    def running(self, node: pytest.Item, options: FixtureOptions, audited: list[AuditedTest]) -> Generator[FixtureRun]:
        """From the state that the isolation gives a test to the verdict."""
        isolation.begin(self, options)
        run = RemoteRun(self.control, node, options, audited, lambda: isolation.end(self, options))
        with from_set_up_to_verdict(run):
            yield run

    def hand_over_coverage(self) -> None:
        """What has been counted by now, once. Of a process that has ended it is lost."""
        coverage, self._coverage = self._coverage, None
        if coverage is not None:
            with suppress(NotRunningError):
                counted = self.control.ask("GET", "/v1/coverage")
                coverage.merge({section: counted[section] for section in SECTIONS})

    def stop(self) -> None:
        self.hand_over_coverage()

    # As `isolation.World`.

    def reset(self) -> list[str]:
        done: Emptied = self.control.read(Emptied, "POST", "/v1/reset", {})
        self.contents = EMPTY
        return list(done.leaks)

    def load(self, seed: str | Path | Mapping[str, Any]) -> None:
        self.kafka().load(seed)

    def snapshot_names(self) -> Collection[str]:
        found: SnapshotNames = self.control.read(SnapshotNames, "GET", "/v1/snapshots")
        return found.snapshots

    def take_snapshot(self, name: str) -> None:
        self.kafka().snapshot(name)

    def restore(self, name: str) -> list[str]:
        path = f"/v1/snapshots/{part(name)}/restore"
        done: RestoreDocument = self.control.read(RestoreDocument, "POST", path, {})
        self.contents = name
        return list(done.leaks)

    def drop_snapshot(self, name: str) -> None:
        self.control.ask("DELETE", f"/v1/snapshots/{part(name)}")

    def open_connections(self) -> list[str]:
        found: ConnectionList = self.control.read(ConnectionList, "GET", "/v1/connections")
        return list(map(describe_leak, found.connections))

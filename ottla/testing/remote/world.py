"""The world of brokers in another process, as fixtures begin and end tests with it: all of it is asked over HTTP."""

from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import isolation
from ottla.testing.control.client import part
from ottla.testing.control.documents import ConnectionList, Emptied, RestoreDocument, SnapshotNames
from ottla.testing.coverage import SECTIONS, Coverage
from ottla.testing.fixture_options import FixtureOptions
from ottla.testing.fixture_runs import AuditedTest
from ottla.testing.handle import Kafka
from ottla.testing.remote.asking import RemoteControl
from ottla.testing.remote.fixture_run import RemoteRun, running_remotely
from ottla.testing.remote.handle import RemoteKafka
from ottla.testing.testbed import EMPTY
from ottla.testing.worker import NotRunningError
from ottla.testing.worlds import describe_leak


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
    def running(self, node: pytest.Item, options: FixtureOptions, audited: list[AuditedTest]) -> Generator[RemoteRun]:
        """From the state that the isolation gives a test to the verdict."""
        isolation.begin(self, options)
        run = RemoteRun(self.control, node, options, audited, lambda: isolation.end(self, options))
        with running_remotely(run, node, options):
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

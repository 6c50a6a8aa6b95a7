"""What the fixtures of `pytest_ottla` do, imported when the first of them is set up.

Testbeds are kept for the session, one for each configuration that tests ask for, and emptied between two tests.
"""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from ottla.testing import isolation
from ottla.testing.fixture_options import PROCESS, FixtureOptions, marked_options, session_options
from ottla.testing.fixture_runs import AuditedTest, FixtureRun
from ottla.testing.handle import Kafka
from ottla.testing.profile import cluster_settings
from ottla.testing.report import ReportMark, Section, failure_sections, leftovers
from ottla.testing.testbed import Testbed

if TYPE_CHECKING:
    from ottla.testing.artifacts import TestArtifacts
    from ottla.testing.async_handle import KafkaAsync
    from ottla.testing.coverage import Coverage
    from ottla.testing.matrix.trial import Trial
    from ottla.testing.remote.given_brokers import GivenBrokers
    from ottla.testing.remote.world import RemoteWorld
    from ottla.testing.shared.worker import SharedBrokers

BEDS_MAX: Final = 4
"""Of one session: the one that was used least recently ends."""


class TestbedPool:
    """The testbeds of a session."""

    __test__ = False

    def __init__(self, config: pytest.Config) -> None:
        self.options = session_options(config)
        self.shared = _shared(config, self.options)
        """The brokers that this worker shares with others, with --ottla-shared."""
        self._env: list[str] = config.getini("ottla_env")
        self._environ: dict[str, str | None] = {}
        # The least recently used first.
        self._beds: dict[tuple[object, ...], Testbed | RemoteWorld] = {}
        self.profiles: dict[str, None] = {}
        self.audited: list[AuditedTest] = []
        self.coverage = _coverage(config)
        self.given = _given(config)
        """Brokers that run already, with --ottla-bootstrap or --ottla-control."""
        if self.given is not None:
            self._take(self.given)
        self.trial: Trial | None = None
        """Of the test that is running, with --ottla-faults-matrix."""
        artifacts = config.getoption("ottla_artifacts")
        self.artifacts = None if artifacts is None else config.invocation_params.dir / artifacts

    def get(self, options: FixtureOptions) -> "Testbed | RemoteWorld":
        """Raises ConfigError, StartError. Skips the test that needs a control which the brokers do not have."""
        if self.given is not None and self.given.has_no_control and options.key == self.options.key:
            pytest.skip(self.given.why_skipped)
        bed = self._beds.pop(options.key, None)
        if bed is not None and not isinstance(bed, Testbed) and not bed.is_running:
            bed.stop()
            bed = None
        if bed is None:
            if len(self._beds) >= BEDS_MAX:
                # Not the session's own, which fixtures of that scope may hold.
                oldest = next(key for key in self._beds if key != self.options.key)
                self._beds.pop(oldest).stop()
            bed = self.opened(options)
        self._beds[options.key] = bed
        return bed

    def opened(self, options: FixtureOptions) -> "Testbed | RemoteWorld":
        """Raises ConfigError, StartError."""
        bed = self._started(options)
        self.profiles[options.profile] = None
        self.set_environment(bed.hosted.bootstrap if isinstance(bed, Testbed) else bed.control.bootstrap)
        return bed

    def _take(self, given: "GivenBrokers") -> None:
        """Raises NotRunningError."""
        if not given.has_no_control:
            self._beds[self.options.key] = given.world(self.options.deadline, self.coverage)
        self.set_environment(given.bootstrap)

    def _started(self, options: FixtureOptions) -> "Testbed | RemoteWorld":
        if options.where == PROCESS:
            from ottla.testing.remote.broker_process import BrokerProcess

            return BrokerProcess(options, self.coverage)
        bed = options.testbed()
        bed.wire.coverage = self.coverage
        bed.start()
        return bed

    def set_environment(self, bootstrap: str) -> None:
        """As `ottla_env` says, until the end of the session."""
        for name in self._env:
            self._environ.setdefault(name, os.environ.get(name))
            os.environ[name] = bootstrap

    def session_handle(self) -> Kafka:
        """Raises ConfigError, StartError."""
        if self.shared is None:
            return handle_of(self.get(self.options))
        self.set_environment(self.shared.control.bootstrap)
        return self.shared.kafka()

    @property
    def uses_faults(self) -> bool:
        return any(
            bed.hosted.fault_host.faults_if_used is not None if isinstance(bed, Testbed) else bed.control.uses_faults
            for bed in self._beds.values()
        )

    def counted(self) -> "Coverage | None":
        """By all brokers of the session; at its end. None where nothing is counted."""
        for bed in self._beds.values():
            if not isinstance(bed, Testbed):
                bed.hand_over_coverage()
        return self.coverage

    def close(self) -> None:
        for bed in self._beds.values():
            bed.stop()
        self._beds.clear()
        for name, value in self._environ.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _coverage(config: pytest.Config) -> "Coverage | None":
    if config.getoption("ottla_coverage") is None:
        return None
    # Imported here, with the table of errors: most runs count nothing.
    from ottla.testing.coverage import Coverage

    return Coverage()


def _given(config: pytest.Config) -> "GivenBrokers | None":
    if not config.getoption("ottla_bootstrap") and not config.getoption("ottla_control"):
        return None
    from ottla.testing.remote.given_brokers import given_brokers

    return given_brokers(config)


def _shared(config: pytest.Config, options: FixtureOptions) -> "SharedBrokers | None":
    given: dict[str, str] | None = getattr(config, "workerinput", {}).get("ottla_shared")
    if given is None:
        return None
    from ottla.testing.shared.worker import SharedBrokers

    return SharedBrokers(given, options)


def handle_of(bed: "Testbed | RemoteWorld") -> Kafka:
    return Kafka(bed) if isinstance(bed, Testbed) else bed.kafka()


class TestRun(FixtureRun):
    """One test and its testbed."""

    def __init__(
        self,
        pool: TestbedPool,
        bed: Testbed,
        node: pytest.Item,
        options: FixtureOptions,
        artifacts: "TestArtifacts | None" = None,
    ) -> None:
        super().__init__(node, options, pool.audited)
        self.bed = bed
        self.artifacts = artifacts
        self._pool = pool
        self._mark = ReportMark.now(bed)
        bed.wire.test = node.name
        is_audited = options.audit != "off" or pool.trial is not None
        bed.call(lambda: bed.auditor.begin(is_on=is_audited))

    def kafka(self) -> Kafka:
        return Kafka(self.bed)

    def kafka_async(self) -> "KafkaAsync":
        from ottla.testing.async_handle import KafkaAsync

        return KafkaAsync(self.bed)

    def sections(self, report: pytest.TestReport, *, is_full: bool) -> list[Section]:
        is_full = is_full or self.artifacts is not None
        sections = self.bed.call(lambda: failure_sections(self.bed, self._mark, is_full=is_full))
        if self.artifacts is None:
            return sections
        self.artifacts.note_failure(report.when, report.longreprtext, sections)
        return [("ottla: artifacts", str(self.artifacts.path))]

    def end(self) -> None:
        bed, options = self.bed, self.options
        # With no broker there is no log to judge by.
        found = bed.call(bed.auditor.findings) if bed.hosted.parts() else []
        unused = self._unused_faults()
        left = [] if options.isolation == "fresh" else bed.call(leftovers, bed, self.groups)
        trial = self._pool.trial
        if trial is not None:
            trial.end(bed, found)
        bed.run(bed.left_open(self._node.name))
        leaks = isolation.end(isolation.TestbedWorld(bed), options)
        bed.wire.test = ""
        if trial is None or not trial.is_again:
            self.conclude(found, unused, leaks, left)

    def _unused_faults(self) -> list[str]:
        """And steps of scripts that did not run, and functions of rules that failed. All end, whatever is kept between
        tests."""
        faults, scripts = self.bed.hosted.fault_host.faults_if_used, self.bed.scripts_if_used
        sentences, failures = list[str](), list[str]()
        if scripts is not None:
            sentences += self.bed.call(scripts.unused)
            self.bed.run(scripts.clear())
        if faults is not None:
            failures = faults.failures()
            sentences += [each.text for each in faults.unused() if each.is_error and each.text not in failures]
            if self._pool.coverage is not None:
                self._pool.coverage.note_injected(faults.all_since_clear())
            faults.clear()
        return [*([] if self.has_failed else failures), *self.judged_unused(sentences)]


@contextmanager
def running_test(pool: TestbedPool, node: pytest.Item, options: FixtureOptions | None = None) -> Generator[FixtureRun]:
    """A test with brokers of its options: those of the marker, or the ones given."""
    function = getattr(node, "function", None)
    if getattr(function, "is_hypothesis_test", False):
        pytest.fail(
            "a test by @given runs its examples within one `kafka`: take the fixture kafka_world, and write "
            "`with kafka_world() as kafka:` in the test, which is a clean broker for each example",
            pytrace=False,
        )
    options = marked_options(pool.options, node) if options is None else options
    if pool.shared is not None and pool.shared.serve(node, options):
        pool.set_environment(pool.shared.control.bootstrap)
        with pool.shared.running(node, options, pool.audited) as shared:
            yield shared
        return
    bed = pool.opened(options) if options.isolation == "fresh" else pool.get(options)
    if isinstance(bed, Testbed):
        running = _running(pool, bed, node, options)
    else:
        running = bed.running(node, options, pool.audited)
    with running as run:
        yield run


@contextmanager
def _running(pool: TestbedPool, bed: Testbed, node: pytest.Item, options: FixtureOptions) -> Generator[FixtureRun]:
    """With a testbed in this process."""
    isolation.begin(isolation.TestbedWorld(bed), options)
    trial = pool.trial
    is_again = trial is not None and trial.is_again
    artifacts = None if pool.artifacts is None or is_again else _begun_artifacts(pool.artifacts, bed, node)
    run = TestRun(pool, bed, node, options, artifacts)
    if options.clock != "real":
        Kafka(bed).clock.freeze(options.clock if isinstance(options.clock, datetime) else None)
    for name, partitions in options.topics.items():
        Kafka(bed).create_topic(name, partitions)
    if options.faults is not None:
        Kafka(bed).faults.load(node.path.parent / options.faults)
    if trial is not None:
        trial.begin(bed)
    try:
        yield run
    finally:
        _end(run)


def _begun_artifacts(directory: Path, bed: Testbed, node: pytest.Item) -> "TestArtifacts":
    from ottla.testing.artifacts import TestArtifacts

    artifacts = TestArtifacts(directory, node.nodeid)
    artifacts.begin(bed)
    return artifacts


def _end(run: TestRun) -> None:
    artifacts, has_ended_well = run.artifacts, False
    if artifacts is not None:
        artifacts.note_faults(run.bed)
    try:
        run.end()
        has_ended_well = True
    finally:
        if artifacts is not None:
            is_kept = run.has_failed or not has_ended_well
            artifacts.end(run.bed, is_kept=is_kept, seed=run.options.fault_seed)


def cluster_options(pool: TestbedPool, node: pytest.Item) -> FixtureOptions:
    options = marked_options(pool.options, node)
    brokers = max(options.brokers, 3)
    return replace(options, brokers=brokers, settings={**cluster_settings(brokers), **options.settings})


@contextmanager
def clean_world(pool: TestbedPool) -> Generator[Kafka]:
    """For one example of Hypothesis: emptied, or restored where that is the mode of the session."""
    options = pool.options
    if options.isolation != "snapshot":
        options = replace(options, isolation="reset")
    bed = pool.get(options)
    world = isolation.TestbedWorld(bed) if isinstance(bed, Testbed) else bed
    isolation.begin(world, options)
    try:
        yield handle_of(bed)
    finally:
        isolation.end(world, options)


def broker_fixture(
    name: str,
    *,
    scope: Any = "module",
    brokers: int = 1,
    settings: Mapping[str, object] | None = None,
    profile: str = "test",
    topics: Mapping[str, int] | None = None,
    data: str | Path = "auto",
    deadline: float = 5.0,
    unsynced: bool = False,
) -> Callable[..., Any]:
    """A pytest fixture of this name and scope that yields a `Kafka` of its own:

        orders_kafka = broker_fixture("orders_kafka", topics={"orders": 3})

    Nothing is emptied between the tests of its scope, unless they call `reset`."""

    def opened() -> Generator[Kafka]:
        bed = Testbed(
            brokers=brokers,
            settings=settings,
            profile=profile,
            topics=topics,
            data=data,
            deadline=deadline,
            unsynced=unsynced,
        )
        bed.start()
        try:
            yield Kafka(bed)
        finally:
            bed.stop()

    opened.__doc__ = f"{name}: a broker of its own."
    fixture: Callable[..., Any] = pytest.fixture(opened, scope=scope, name=name)  # pyright: ignore[reportUnknownMemberType]
    return fixture

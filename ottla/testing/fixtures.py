"""What the fixtures of `pytest_ottla` do for a test with brokers in its process, imported when the first is set up.

Brokers are kept for the session (`ottla.testing.testbed_pool`), and emptied between two tests.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.testing import isolation
from ottla.testing.fixture_options import FixtureOptions, marked_options
from ottla.testing.fixture_runs import FixtureRun, Leaks, from_set_up_to_verdict
from ottla.testing.handle import Kafka
from ottla.testing.profile import cluster_settings
from ottla.testing.report import ReportMark, Section, failure_sections, leftovers
from ottla.testing.testbed import Testbed
from ottla.testing.testbed_pool import TestbedPool, bootstrap_of, handle_of
from ottla.testing.worlds import describe_leak

if TYPE_CHECKING:
    from ottla.testing.artifacts import TestArtifacts
    from ottla.testing.async_handle import KafkaAsync


class TestRun(FixtureRun):
    """One test and its testbed."""

    def __init__(self, pool: TestbedPool, bed: Testbed, node: pytest.Item, options: FixtureOptions) -> None:
        super().__init__(node, options, pool.audited)
        self.bed = bed
        self.artifacts: TestArtifacts | None = None
        self._pool = pool
        self._trial = pool.trial
        self._mark = ReportMark.now(bed)
        bed.wire.test = node.name
        is_audited = options.audit != "off" or self._trial is not None
        bed.call(lambda: bed.auditor.begin(is_on=is_audited))

    def kafka(self) -> Kafka:
        return Kafka(self.bed)

    def kafka_async(self) -> "KafkaAsync":
        from ottla.testing.async_handle import KafkaAsync

        return KafkaAsync(self.bed)

    def set_up(self) -> None:
        if self._pool.artifacts is not None and not self._is_again:
            self.artifacts = _begun_artifacts(self._pool.artifacts, self.bed, self._node)
        super().set_up()
        if self._trial is not None:
            self._trial.begin(self.bed)

    def give_up(self, error: BaseException) -> None:
        if self.artifacts is not None:
            self.artifacts.note_failure("setup", str(error), [])
        super().give_up(error)

    def sections(self, report: pytest.TestReport, *, is_full: bool) -> list[Section]:
        is_full = is_full or self.artifacts is not None
        sections = self.bed.call(lambda: failure_sections(self.bed, self._mark, is_full=is_full))
        if self.artifacts is None:
            return sections
        self.artifacts.note_failure(report.when, report.longreprtext, sections)
        return [("ottla: artifacts", str(self.artifacts.path))]

    def finish(self) -> None:
        artifacts, has_ended_well = self.artifacts, False
        if artifacts is not None:
            artifacts.note_faults(self.bed)
        try:
            super().finish()
            has_ended_well = True
        finally:
            if artifacts is not None:
                is_kept = self.has_failed or not has_ended_well
                artifacts.end(self.bed, is_kept=is_kept, seed=self.options.fault_seed)

    def end(self) -> None:
        bed, options = self.bed, self.options
        # With no broker there is no log to judge by.
        found = bed.call(bed.auditor.findings) if bed.hosted.parts() else []
        unused = self._unused_faults()
        left = [] if options.isolation == "fresh" else bed.call(leftovers, bed, self.groups)
        if self._trial is not None:
            self._trial.end(bed, found)
        opened_here = list(map(describe_leak, bed.run(bed.left_open(self._node.name))))
        leaks = Leaks(isolation.end(isolation.TestbedWorld(bed), options), opened_here)
        bed.wire.test = ""
        if not self._is_again:
            self.conclude(found, unused, leaks, left)

    @property
    def _is_again(self) -> bool:
        return self._trial is not None and self._trial.is_again

    def _unused_faults(self) -> list[str]:
        """And steps of scripts that did not run. Both end, whatever is kept between tests."""
        faults, scripts = self.bed.hosted.fault_host.faults_if_used, self.bed.scripts_if_used
        sentences: list[str] = []
        if scripts is not None:
            sentences += self.bed.call(scripts.unused)
            self.bed.run(scripts.clear())
        if faults is not None:
            sentences += [each.text for each in faults.unused() if each.is_error]
            if self._pool.coverage is not None:
                self._pool.coverage.note_injected(faults.all_since_clear())
            faults.clear()
        return self.judged_unused(sentences)


def _begun_artifacts(directory: Path, bed: Testbed, node: pytest.Item) -> "TestArtifacts":
    from ottla.testing.artifacts import TestArtifacts

    artifacts = TestArtifacts(directory, node.nodeid)
    artifacts.begin(bed)
    return artifacts


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
        with (
            pool.environment.naming(pool.shared.control.bootstrap),
            pool.shared.running(node, options, pool.audited) as shared,
        ):
            yield shared
        return
    is_fresh = options.isolation == "fresh"
    bed = pool.opened(options) if is_fresh else pool.get(options)
    with ExitStack() as ends:
        if is_fresh:
            # Also where the test does not come to its end.
            ends.callback(bed.stop)
        ends.enter_context(pool.environment.naming(bootstrap_of(bed)))
        if isinstance(bed, Testbed):
            yield ends.enter_context(_running(pool, bed, node, options))
        else:
            yield ends.enter_context(bed.running(node, options, pool.audited))


@contextmanager
def _running(pool: TestbedPool, bed: Testbed, node: pytest.Item, options: FixtureOptions) -> Generator[FixtureRun]:
    """With a testbed in this process."""
    isolation.begin(isolation.TestbedWorld(bed), options)
    with from_set_up_to_verdict(TestRun(pool, bed, node, options)) as run:
        yield run


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
    with pool.environment.naming(bootstrap_of(bed)):
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

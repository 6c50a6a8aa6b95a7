"""What the fixtures of `pytest_ottla` do for a test with brokers in its process, imported when the first is set up.

Brokers are kept for the session (`ottla.testing.testbed_pool`), and emptied between two tests.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.broker.config.options import ConfigError
from ottla.broker.runtime import StartError
from ottla.testing import isolation
from ottla.testing.fixture_options import FixtureOptions, marked_options, session_options
from ottla.testing.fixture_runs import FixtureRun, Leaks, from_set_up_to_verdict
from ottla.testing.handle import Kafka
from ottla.testing.profile import cluster_settings
from ottla.testing.report import ReportMark, Section, failure_sections, leftovers
from ottla.testing.scoped_brokers import judged_at_its_end
from ottla.testing.testbed import Testbed
from ottla.testing.testbed_pool import TestbedPool, bootstrap_of
from ottla.testing.verdicts import end_rules, findings_of
from ottla.testing.worlds import describe_leak

if TYPE_CHECKING:
    from ottla.testing.artifacts import TestArtifacts
    from ottla.testing.async_handle import KafkaAsync


class TestRun(FixtureRun):
    """One test and its testbed."""

    def __init__(
        self, pool: TestbedPool, bed: Testbed, node: pytest.Item, options: FixtureOptions, *, is_block: bool = False
    ) -> None:
        """`is_block`: of `kafka_world`, not the whole test: it leaves no artifacts, and is no trial."""
        super().__init__(node, options, pool.audited)
        self.bed = bed
        self.artifacts: TestArtifacts | None = None
        self._artifacts_dir = None if is_block else pool.artifacts
        self._trial = None if is_block else pool.trial
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
        if self._artifacts_dir is not None and not self._is_again:
            self.artifacts = _begun_artifacts(self._artifacts_dir, self.bed, self._node)
        super().set_up()
        if self._trial is not None:
            self._trial.begin(self.bed)

    def give_up(self, error: BaseException) -> None:
        if self.artifacts is not None:
            self.artifacts.note_failure("setup", str(error), [])
        super().give_up(error)

    def shown(self, *, is_full: bool) -> list[Section]:
        return self.bed.call(lambda: failure_sections(self.bed, self._mark, is_full=is_full))

    def sections(self, report: pytest.TestReport, *, is_full: bool) -> list[Section]:
        if self.artifacts is None:
            return self.shown(is_full=is_full)
        self.artifacts.note_failure(report.when, report.longreprtext, self.shown(is_full=True))
        return [("ottla: artifacts", str(self.artifacts.path))]

    def finish(self) -> None:
        artifacts, has_ended_well = self.artifacts, False
        try:
            super().finish()
            has_ended_well = True
        finally:
            if artifacts is not None:
                is_kept = self.has_failed or not has_ended_well
                artifacts.end(self.bed, is_kept=is_kept, seed=self.options.fault_seed)

    def end(self) -> None:
        bed, options = self.bed, self.options
        found, ended = findings_of(bed), end_rules(bed)
        unused = [*([] if self.has_failed or self.has_skipped else ended.failures), *self.judged_unused(ended.unused)]
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


def _begun_artifacts(directory: Path, bed: Testbed, node: pytest.Item) -> "TestArtifacts":
    from ottla.testing.artifacts import TestArtifacts

    artifacts = TestArtifacts(directory, node.nodeid)
    artifacts.begin(bed)
    return artifacts


@contextmanager
def one_sentence() -> Generator[None]:
    """What is wrong with an option, or keeps brokers from starting, without the frames that have found it."""
    try:
        yield
    except (ConfigError, StartError) as error:
        pytest.fail(str(error), pytrace=False)


def marked(pool: TestbedPool, node: pytest.Item) -> FixtureOptions:
    """The options of a test, by its marker."""
    with one_sentence():
        return marked_options(pool.options, node)


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
    options = marked(pool, node) if options is None else options
    if pool.shared is not None and pool.shared.serve(node, options):
        with (
            pool.environment.naming(pool.shared.control.bootstrap),
            pool.shared.running(node, options, pool.audited) as shared,
        ):
            yield shared
        return
    is_fresh = options.isolation == "fresh"
    with one_sentence():
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
def _running(
    pool: TestbedPool, bed: Testbed, node: pytest.Item, options: FixtureOptions, *, is_block: bool = False
) -> Generator[FixtureRun]:
    """With a testbed in this process."""
    isolation.begin(isolation.TestbedWorld(bed), options)
    with from_set_up_to_verdict(TestRun(pool, bed, node, options, is_block=is_block)) as run:
        yield run


def cluster_options(pool: TestbedPool, node: pytest.Item) -> FixtureOptions:
    options = marked(pool, node)
    brokers = max(options.brokers, 3)
    return replace(options, brokers=brokers, settings={**cluster_settings(brokers), **options.settings})


@contextmanager
def clean_world(pool: TestbedPool, running: Callable[[], pytest.Item]) -> Generator[Kafka]:
    """For one example of Hypothesis: emptied, or restored where that is the mode of the session. Its end is judged as
    that of a test. `running`: the test that runs."""
    options, node = pool.options, running()
    if options.isolation != "snapshot":
        options = replace(options, isolation="reset")
    bed = pool.get(options)
    if isinstance(bed, Testbed):
        block = _running(pool, bed, node, options, is_block=True)
    else:
        block = bed.running(node, options, pool.audited)
    with pool.environment.naming(bootstrap_of(bed)), block as run:
        try:
            yield run.kafka()
        except Exception:
            pool.world_sections = run.shown(is_full=node.config.getoption("ottla_report") == "full")
            raise


def broker_fixture(
    name: str,
    *,
    scope: Any = "module",
    brokers: int = 1,
    settings: Mapping[str, object] | None = None,
    profile: str = "test",
    topics: Mapping[str, int] | None = None,
    data: str | Path = "auto",
    deadline: float | None = None,
    audit: str | None = None,
    unsynced: bool = False,
) -> Callable[..., Any]:
    """A pytest fixture of this name and scope that yields a `Kafka` of its own:

        orders_kafka = broker_fixture("orders_kafka", topics={"orders": 3})

    Nothing is emptied between the tests of its scope, unless they call `reset`. At its end rules that never acted and
    the audit are judged, as at the end of a test with `kafka`. `deadline`, in seconds, and `audit` are those of the
    session (`ottla_deadline`, `ottla_audit`) unless they are given, and so is `--ottla-seed`."""

    def opened(pytestconfig: pytest.Config) -> Generator[Kafka]:
        options = _scope_options(pytestconfig, deadline, audit)
        bed = Testbed(
            brokers=brokers,
            settings=settings,
            profile=profile,
            topics=topics,
            data=data,
            deadline=options.deadline,
            fault_seed=options.fault_seed,
            audit=options.audit,
            unsynced=unsynced,
        )
        bed.start()
        try:
            with judged_at_its_end(bed, name, options, pytestconfig):
                yield Kafka(bed)
        finally:
            bed.stop()

    opened.__doc__ = f"{name}: a broker of its own."
    fixture: Callable[..., Any] = pytest.fixture(opened, scope=scope, name=name)  # pyright: ignore[reportUnknownMemberType]
    return fixture


def _scope_options(config: pytest.Config, deadline: float | None, audit: str | None) -> FixtureOptions:
    """Raises ConfigError."""
    options = session_options(config)
    return replace(
        options,
        deadline=options.deadline if deadline is None else deadline,
        audit=options.audit if audit is None else audit,
    )

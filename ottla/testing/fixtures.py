"""What the fixtures of `pytest_ottla` do, imported when the first of them is set up.

Testbeds are kept for the session, one for each configuration that tests ask for, and emptied between two tests.
"""

import os
import re
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from ottla.broker.config.options import ConfigError
from ottla.testing import isolation
from ottla.testing.audit.auditor import MODES, leftover, summary
from ottla.testing.audit.findings import AuditFinding, FindingKind
from ottla.testing.handle import Kafka
from ottla.testing.isolation import ISOLATIONS
from ottla.testing.profile import cluster_settings
from ottla.testing.report import ReportMark, Section, failure_sections, leftovers
from ottla.testing.testbed import Testbed
from ottla.testing.worlds import describe_leak

if TYPE_CHECKING:
    from ottla.testing.artifacts import TestArtifacts
    from ottla.testing.coverage import Coverage
    from ottla.testing.matrix.trial import Trial

LEAKS: Final = ("warn", "error", "ignore")
UNUSED_FAULTS: Final = ("error", "warn", "ignore")
CLOCKS: Final = ("real", "frozen")
BEDS_MAX: Final = 4
"""Of one session: the one that was used least recently ends."""


class OttlaWarning(pytest.PytestWarning):
    """A test has left something in its broker that the next one may meet."""


@dataclass(frozen=True)
class FixtureOptions:
    brokers: int
    settings: Mapping[str, object]
    profile: str
    isolation: str
    topics: Mapping[str, int]
    data: str
    deadline: float
    leaks: str
    unused_faults: str
    fault_seed: int
    audit: str = "errors"
    faults: str | Path | None = None
    """A file with rules that hold from the begin of the test."""
    seed: Path | None = None
    """A file with what the broker has at the begin of the test."""
    clock: str | datetime = "real"
    """How broker time begins: real, frozen, or frozen at a moment."""

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        choices = (("isolation", ISOLATIONS), ("leaks", LEAKS), ("unused_faults", UNUSED_FAULTS), ("audit", MODES))
        for name, allowed in choices:
            value = getattr(self, name)
            if value not in allowed:
                raise ConfigError(f"ottla_{name}={value!r}: expected one of {', '.join(allowed)}")
        if self.clock not in CLOCKS and not isinstance(self.clock, datetime):
            raise ConfigError(f"clock={self.clock!r}: expected one of {', '.join(CLOCKS)}, or a datetime")

    @property
    def key(self) -> tuple[object, ...]:
        """The same for tests that can share a broker."""
        return self.brokers, self.profile, tuple(sorted((name, str(each)) for name, each in self.settings.items()))

    def testbed(self, topics: Mapping[str, int] | None = None) -> Testbed:
        return Testbed(
            brokers=self.brokers,
            settings=self.settings,
            profile=self.profile,
            topics=topics,
            data=self.data,
            deadline=self.deadline,
            fault_seed=self.fault_seed,
        )


def session_options(config: pytest.Config) -> FixtureOptions:
    """What ini and command line say. Raises ConfigError."""
    lines: list[str] = config.getini("ottla_settings")
    settings = dict(line.split("=", 1) for line in lines if "=" in line)
    wrong = [line for line in lines if "=" not in line]
    if wrong:
        raise ConfigError(f"ottla_settings: {wrong[0]!r} is not NAME=VALUE")
    return FixtureOptions(
        brokers=int(config.getini("ottla_brokers")),
        settings=settings,
        profile=config.getini("ottla_profile"),
        isolation=config.getoption("ottla_isolation") or config.getini("ottla_isolation"),
        topics={},
        data=config.getini("ottla_data"),
        deadline=float(config.getini("ottla_deadline")),
        leaks=config.getini("ottla_leaks"),
        unused_faults=config.getini("ottla_unused_faults"),
        fault_seed=cast("int", config.getoption("ottla_seed")),
        seed=config.rootpath / config.getini("ottla_seed_file") if config.getini("ottla_seed_file") else None,
        audit=config.getoption("ottla_audit") or config.getini("ottla_audit"),
    )


def marked_options(options: FixtureOptions, node: pytest.Item) -> FixtureOptions:
    """The options with what the marker says; the settings of both hold. Raises ConfigError."""
    for marker in reversed(list(node.iter_markers("kafka"))):
        given: dict[str, Any] = dict(marker.kwargs)
        settings = {**options.settings, **given.pop("settings", {})}
        if given.get("seed") is not None:
            given["seed"] = node.path.parent / given["seed"]
        options = replace(options, settings=settings, **given)
    return options


AuditedTest = tuple[str, str, str]
"""A test that ended with a finding: its id, the kind and the line of the finding."""


class TestbedPool:
    """The testbeds of a session."""

    __test__ = False

    def __init__(self, config: pytest.Config) -> None:
        self.options = session_options(config)
        self._env: list[str] = config.getini("ottla_env")
        self._environ: dict[str, str | None] = {}
        # The least recently used first.
        self._beds: dict[tuple[object, ...], Testbed] = {}
        self.profiles: dict[str, None] = {}
        self.audited: list[AuditedTest] = []
        self.coverage = _coverage(config)
        self.trial: Trial | None = None
        """Of the test that is running, with --ottla-faults-matrix."""
        artifacts = config.getoption("ottla_artifacts")
        self.artifacts = None if artifacts is None else config.invocation_params.dir / artifacts

    def get(self, options: FixtureOptions) -> Testbed:
        """Raises ConfigError, StartError."""
        bed = self._beds.pop(options.key, None)
        if bed is None:
            if len(self._beds) >= BEDS_MAX:
                # Not the session's own, which fixtures of that scope may hold.
                oldest = next(key for key in self._beds if key != self.options.key)
                self._beds.pop(oldest).stop()
            bed = self.opened(options)
        self._beds[options.key] = bed
        return bed

    def opened(self, options: FixtureOptions) -> Testbed:
        bed = options.testbed()
        bed.wire.coverage = self.coverage
        bed.start()
        self.profiles[options.profile] = None
        for name in self._env:
            self._environ.setdefault(name, os.environ.get(name))
            os.environ[name] = bed.hosted.bootstrap
        return bed

    @property
    def uses_faults(self) -> bool:
        return any(bed.hosted.fault_host.faults_if_used is not None for bed in self._beds.values())

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


class TestRun:
    """One test and its testbed."""

    __test__ = False

    def __init__(
        self,
        pool: TestbedPool,
        bed: Testbed,
        node: pytest.Item,
        options: FixtureOptions,
        artifacts: "TestArtifacts | None" = None,
    ) -> None:
        self.bed = bed
        self.artifacts = artifacts
        self._pool = pool
        self.options = options
        self.groups: list[str] = []
        self.has_failed = False
        self._node = node
        self._numbers = count(1)
        self._mark = ReportMark.now(bed)
        bed.wire.test = node.name
        is_audited = options.audit != "off" or pool.trial is not None
        bed.call(lambda: bed.auditor.begin(is_on=is_audited))

    def new_name(self, kind: str) -> str:
        """Unique to test, worker and call."""
        words = re.sub(r"[^A-Za-z0-9_.-]+", "-", self._node.name).strip("-")[:120]
        worker = getattr(self._node.config, "workerinput", {}).get("workerid")
        return "-".join(filter(None, (words, worker, f"{kind}{next(self._numbers)}")))

    def new_topic(self, partitions: int | None = None, **configs: object) -> str:
        name = self.new_name("topic")
        Kafka(self.bed).create_topic(name, partitions, configs={key.replace("_", "."): configs[key] for key in configs})
        return name

    def new_group(self) -> str:
        name = self.new_name("group")
        self.groups.append(name)
        return name

    def sections(self, report: pytest.TestReport, *, is_full: bool) -> list[Section]:
        """What the report of a phase that failed shows."""
        is_full = is_full or self.artifacts is not None
        sections = self.bed.call(lambda: failure_sections(self.bed, self._mark, is_full=is_full))
        if self.artifacts is None:
            return sections
        self.artifacts.note_failure(report.when, report.longreprtext, sections)
        return [("ottla: artifacts", str(self.artifacts.path))]

    def end(self) -> None:
        """Empties what the options say, and reports what was left open."""
        bed, options = self.bed, self.options
        # With no broker there is no log to judge by.
        found = bed.call(bed.auditor.findings) if bed.hosted.parts() else []
        unused = self._unused_faults()
        left = [] if options.isolation == "fresh" else bed.call(leftovers, bed, self.groups)
        trial = self._pool.trial
        if trial is not None:
            trial.end(bed, found)
        leaks = isolation.end(bed, options)
        bed.wire.test = ""
        if trial is not None and trial.is_again:
            return
        connections = list(map(describe_leak, leaks))
        found += [
            *leftover(FindingKind.L1, connections),
            *leftover(FindingKind.L2, left),
            *leftover(FindingKind.L3, unused),
        ]
        self._pool.audited += [(self._node.nodeid, each.kind.name, each.lines()[0]) for each in found]
        self._report([*connections, *left])
        wrong = [*unused, *self._audited(found)]
        if wrong:
            pytest.fail("\n".join(wrong), pytrace=False)

    def _audited(self, found: list[AuditFinding]) -> list[str]:
        """What the audit fails the test for."""
        errors = [each for each in found if each.is_error(self.options.audit)]
        return [f"ottla: audit: {len(errors)} findings", *summary(errors)] if errors else []

    def _unused_faults(self) -> list[str]:
        """What is wrong with the rules of a test that has passed: one that injects no fault passes for another reason
        than it says."""
        faults = self.bed.hosted.fault_host.faults_if_used
        if faults is None:
            return []
        sentences = [each.text for each in faults.unused() if each.is_error]
        if self._pool.coverage is not None:
            self._pool.coverage.note_injected(faults)
        faults.clear()
        if self.options.unused_faults == "error":
            return [] if self.has_failed else sentences
        if self.options.unused_faults == "warn":
            for each in sentences:
                warnings.warn(OttlaWarning(each), stacklevel=2)
        return []

    def _report(self, sentences: list[str]) -> None:
        if not sentences or self.options.leaks == "ignore":
            return
        if self.options.leaks == "error":
            pytest.fail("; ".join(sentences), pytrace=False)
        for each in sentences:
            warnings.warn(OttlaWarning(each), stacklevel=2)


@contextmanager
def running_test(pool: TestbedPool, node: pytest.Item, options: FixtureOptions | None = None) -> Generator[TestRun]:
    """A test with a testbed of its options: those of the marker, or the ones given."""
    function = getattr(node, "function", None)
    if getattr(function, "is_hypothesis_test", False):
        pytest.fail(
            "a test by @given runs its examples within one `kafka`: take the fixture kafka_world, and write "
            "`with kafka_world() as kafka:` in the test, which is a clean broker for each example",
            pytrace=False,
        )
    options = marked_options(pool.options, node) if options is None else options
    bed = pool.opened(options) if options.isolation == "fresh" else pool.get(options)
    isolation.begin(bed, options)
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
    isolation.begin(bed, options)
    try:
        yield Kafka(bed)
    finally:
        isolation.end(bed, options)


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
) -> Callable[..., Any]:
    """A pytest fixture of this name and scope that yields a `Kafka` of its own:

        orders_kafka = broker_fixture("orders_kafka", topics={"orders": 3})

    Nothing is emptied between the tests of its scope, unless they call `reset`."""

    def opened() -> Generator[Kafka]:
        bed = Testbed(brokers=brokers, settings=settings, profile=profile, topics=topics, data=data, deadline=deadline)
        bed.start()
        try:
            yield Kafka(bed)
        finally:
            bed.stop()

    opened.__doc__ = f"{name}: a broker of its own."
    fixture: Callable[..., Any] = pytest.fixture(opened, scope=scope, name=name)  # pyright: ignore[reportUnknownMemberType]
    return fixture

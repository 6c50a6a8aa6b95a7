"""The pytest plugin of Ottla: brokers that speak Kafka's protocol, as fixtures (docs/testing.md).

pytest imports this module in every run of every project that has Ottla installed. So it imports pytest and nothing
else; what the fixtures are made of is imported when the first one is set up.
"""

import gc
import random
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing.async_handle import KafkaAsync
    from ottla.testing.clock.handles import BrokerClock
    from ottla.testing.coverage import Coverage
    from ottla.testing.faults.faults import Faults
    from ottla.testing.fixture_runs import FixtureRun
    from ottla.testing.handle import Kafka
    from ottla.testing.shared.shared_broker import SharedBroker
    from ottla.testing.testbed_pool import TestbedPool

MARKER_ARGUMENTS = (
    *("brokers", "settings", "profile", "isolation", "topics", "faults", "seed", "audit", "clock"),
    "unsynced",
)
MARKER = f"kafka({', '.join(MARKER_ARGUMENTS)}): the broker that the fixture `kafka` gives this test"
ISOLATIONS = ("reset", "snapshot", "names", "fresh")
SEED_MAX = 1 << 32
SETTINGS_OF_PROFILE_TEST = 11
"""Of `ottla.testing.profile`, which is not imported before a fixture is set up."""

_pool = pytest.StashKey["TestbedPool"]()
_runs = pytest.StashKey["tuple[FixtureRun, ...]"]()
_running = pytest.StashKey[pytest.Item]()
_shared = pytest.StashKey["SharedBroker"]()
_crashed = pytest.StashKey[list[str]]()
_coverage_lines = pytest.StashKey[list[str]]()
_covered = pytest.StashKey["Coverage"]()
_audited = pytest.StashKey[list[tuple[str, str, str]]]()


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    _import_as_it_is(pluginmanager)
    _add_ini(parser)
    _add_options(parser.getgroup("ottla", "Kafka by Ottla"))


def _import_as_it_is(pluginmanager: pytest.PytestPluginManager) -> None:
    """pytest rewrites the assertions of all that a plugin's distribution brings, here a broker's hundreds of modules: a
    third of the time to the first record, and where no bytecode is kept most of a second. It has no public way to leave
    some out."""
    marked = getattr(pluginmanager.rewrite_hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked.discard("ottla")


def _add_ini(parser: pytest.Parser) -> None:
    parser.addini("ottla_isolation", "what happens between two tests: reset, snapshot, names, fresh", default="reset")
    parser.addini("ottla_where", "where the brokers run: thread, process", default="thread")
    parser.addini("ottla_profile", "test, or kafka for Kafka's defaults untouched", default="test")
    parser.addini("ottla_settings", "server properties, NAME=VALUE", type="linelist", default=[])
    parser.addini("ottla_brokers", "how many brokers the fixtures have", default="1")
    parser.addini("ottla_deadline", "of waits, in seconds", default="5")
    parser.addini("ottla_env", "environment variables that get the bootstrap address", type="args", default=[])
    parser.addini("ottla_data", "where data directories are made: auto, or a directory", default="auto")
    parser.addini("ottla_seed_file", "what the broker has at the begin of each test: a file", default="")
    parser.addini("ottla_leaks", "for connections that a test leaves open: warn, error or ignore", default="warn")
    parser.addini("ottla_unused_faults", "for fault rules that never acted: error, warn or ignore", default="error")
    parser.addini("ottla_coverage_baseline", "an earlier file of --ottla-coverage: a loss fails the run", default="")
    parser.addini(
        "ottla_faults_matrix", "which faults tests are run again under, or NAME: RULE", type="linelist", default=[]
    )
    parser.addini("ottla_faults_matrix_deadline", "of a run under a fault, in seconds", default="30")
    parser.addini("ottla_audit", "what the audit fails tests for: errors, all or off", default="errors")


def _add_options(group: pytest.OptionGroup) -> None:
    group.addoption("--ottla-isolation", choices=ISOLATIONS, help="what happens between two tests")
    group.addoption(
        "--ottla-report", choices=("off", "short", "full"), default="short", help="what a failing test shows of Kafka"
    )
    group.addoption(
        "--ottla-coverage",
        nargs="?",
        const="ottla-coverage.json",
        metavar="FILE",
        help="count which parts of the protocol the suite exercises, and write them to a file",
    )
    group.addoption("--ottla-target", metavar="VERSION", type=_release, help="what of that this Kafka does not have")
    group.addoption(
        "--ottla-faults-matrix",
        nargs="?",
        const="ottla-faults-matrix.json",
        metavar="FILE",
        help="run each test that passes again under faults, and write which it survives to a file",
    )
    group.addoption("--ottla-audit", choices=("errors", "all", "off"), help="what the audit fails tests for")
    group.addoption("--ottla-where", choices=("thread", "process"), help="where the brokers run")
    group.addoption("--ottla-shared", action="store_true", help="all workers of pytest-xdist share one broker")
    group.addoption("--ottla-artifacts", metavar="DIR", help="where a failed test leaves its capture, log and report")
    group.addoption("--ottla-bootstrap", metavar="HOST:PORT", help="use brokers that run already")
    group.addoption("--ottla-control", metavar="URL", help="their control address (ottla serve --testing --control)")
    group.addoption(
        "--ottla-token-file",
        metavar="FILE",
        help="has the token of that address; without it OTTLA_CONTROL_TOKEN has it",
    )
    group.addoption(
        "--ottla-hold", action="store_true", help="keep the brokers of a test that fails until Enter is pressed"
    )
    group.addoption("--ottla-seed", type=int, help="of what fault rules leave to chance; drawn, if it is not given")


def _release(text: str) -> str:
    from ottla.testing.kafka_releases import release_of

    try:
        return release_of(text)
    except ValueError as error:
        raise pytest.UsageError(f"--ottla-target: {error}") from None


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("ottla_seed") is None:
        # Workers have the one of the session that has started them.
        given = getattr(config, "workerinput", {}).get("ottla_seed")
        config.option.ottla_seed = random.randrange(SEED_MAX) if given is None else given
    config.addinivalue_line("markers", MARKER)
    _check_options(config)
    if config.getoption("ottla_faults_matrix") is not None:
        from ottla.testing.matrix.matrix_plugin import FaultsMatrix

        config.pluginmanager.register(FaultsMatrix(config, partial(_pool_of, config)), "ottla-faults-matrix")


def _check_options(config: pytest.Config) -> None:
    """Raises UsageError."""
    is_process = (config.getoption("ottla_where") or config.getini("ottla_where")) == "process"
    is_given = config.getoption("ottla_bootstrap") or config.getoption("ottla_control")
    places = {
        "--ottla-bootstrap": is_given,
        "--ottla-shared": config.getoption("ottla_shared"),
        "--ottla-where=process": is_process,
    }
    chosen = [name for name, is_chosen in places.items() if is_chosen]
    for name in ("ottla_artifacts", "ottla_faults_matrix"):
        if chosen and config.getoption(name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise pytest.UsageError(f"{option} needs brokers in the process of the test: not with {chosen[0]}")
    if is_given and len(chosen) > 1:
        raise pytest.UsageError(f"--ottla-bootstrap names brokers that run already: not with {chosen[1]}")
    if config.getoption("ottla_target") and config.getoption("ottla_coverage") is None:
        raise pytest.UsageError("--ottla-target compares what --ottla-coverage counts, which is not given")
    if config.getoption("ottla_token_file") and not config.getoption("ottla_control"):
        raise pytest.UsageError("--ottla-token-file has the token of an --ottla-control")
    if getattr(config.option, "numprocesses", None):
        isolation = config.getoption("ottla_isolation") or config.getini("ottla_isolation")
        if config.getoption("ottla_control") and isolation != "names":
            raise pytest.UsageError(
                "workers would empty the brokers of --ottla-control under each other: take --ottla-isolation=names"
            )
        if config.getoption("ottla_hold"):
            raise pytest.UsageError("--ottla-hold waits at the terminal, which workers of pytest-xdist do not have")


def pytest_report_header(config: pytest.Config) -> str:
    isolation = config.getoption("ottla_isolation") or config.getini("ottla_isolation")
    profile = config.getini("ottla_profile")
    differ = f" ({SETTINGS_OF_PROFILE_TEST} settings differ from Kafka's)" if profile == "test" else ""
    return f"ottla: isolation {isolation}, profile {profile}{differ}, --ottla-seed={config.getoption('ottla_seed')}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker in item.iter_markers("kafka"):
            unknown = [name for name in marker.kwargs if name not in MARKER_ARGUMENTS]
            if unknown:
                known = ", ".join(MARKER_ARGUMENTS)
                raise pytest.UsageError(f"{item.nodeid}: the marker kafka has no argument {unknown[0]!r}, only {known}")
            if marker.args:
                raise pytest.UsageError(f"{item.nodeid}: arguments of the marker kafka have names: {MARKER}")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Of pytest-xdist: called for each worker."""
    config = node.config
    node.workerinput["ottla_seed"] = config.getoption("ottla_seed")
    if config.getoption("ottla_shared"):
        node.workerinput["ottla_shared"] = _shared_of(config).open_for(node.workerinput["workerid"])


def _shared_of(config: pytest.Config) -> "SharedBroker":
    """Raises UsageError."""
    if _shared not in config.stash:
        from ottla.broker.config.options import ConfigError
        from ottla.broker.runtime import StartError
        from ottla.testing.fixture_options import session_options
        from ottla.testing.shared.shared_broker import SharedBroker

        coverage = None if config.getoption("ottla_coverage") is None else _coverage_of(config)
        try:
            config.stash[_shared] = SharedBroker(session_options(config), coverage)
        except (ConfigError, StartError) as error:
            raise pytest.UsageError(f"--ottla-shared: {error}") from None
    return config.stash[_shared]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[_running] = item


# The outermost, to see what has become of an expected failure.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    detail = item.config.getoption("ottla_report")
    for run in item.stash.get(_runs, ()):
        run.has_failed |= report.failed
        run.has_skipped |= report.skipped
    if report.failed and report.when != "teardown" and detail != "off":
        for run in item.stash.get(_runs, ()):
            report.sections += run.sections(report, is_full=detail == "full")
        pool = item.config.stash.get(_pool, None)
        report.sections += [] if pool is None else pool.world_sections
    if report.failed and report.when != "teardown" and item.config.getoption("ottla_hold"):
        from ottla.testing.fixture_runs import hold

        hold(item, item.stash.get(_runs, ()))
    if report.when == "teardown":
        # The test may be run again.
        item.stash[_runs] = ()
        if _pool in item.config.stash:
            item.config.stash[_pool].world_sections = []
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    stash = config.stash
    pool, shared = stash.get(_pool, None), stash.get(_shared, None)
    coverage_lines, of_workers = stash.get(_coverage_lines, None) or [], stash.get(_audited, None) or []
    if pool is None and shared is None and not coverage_lines and not of_workers:
        return
    from ottla.testing.terminal_summary import SessionOutcome, summary

    crashed, seed = stash.get(_crashed, None) or [], config.getoption("ottla_seed")
    outcome = SessionOutcome(pool, shared, coverage_lines, of_workers, crashed, seed)
    for line in summary(outcome, is_verbose=config.get_verbosity() > 0):
        terminalreporter.write_line(line)


def pytest_sessionfinish(session: pytest.Session) -> None:
    pool = session.config.stash.get(_pool, None)
    # Of pytest-xdist: what a worker hands to the session that has started it.
    output = getattr(session.config, "workeroutput", None)
    if pool is not None and output is not None:
        output["ottla_audit"] = pool.audited
        counted = pool.counted()
        if counted is not None:
            output["ottla_coverage"] = counted.plain()
    elif output is None and session.config.getoption("ottla_coverage") is not None:
        _finish_coverage(session)


def _finish_coverage(session: pytest.Session) -> None:
    """Of the whole suite: written, and held against the baseline."""
    from pathlib import Path

    config = session.config
    coverage = _coverage_of(config)
    pool = config.stash.get(_pool, None)
    counted = None if pool is None else pool.counted()
    if counted is not None:
        coverage.merge(counted.plain())
    given = config.getini("ottla_coverage_baseline")
    file, baseline = Path(str(config.getoption("ottla_coverage"))), config.rootpath / given if given else None
    lines, is_well = coverage.finish(file, baseline=baseline, target=config.getoption("ottla_target"))
    if not is_well:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    config.stash[_coverage_lines] = lines


def _coverage_of(config: pytest.Config) -> "Coverage":
    from ottla.testing.coverage import Coverage

    return config.stash.setdefault(_covered, Coverage())


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Of pytest-xdist: a worker has ended."""
    audited = node.config.stash.setdefault(_audited, [])
    output = getattr(node, "workeroutput", None)
    if output is None:
        node.config.stash.setdefault(_crashed, []).append(node.workerinput["workerid"])
        return
    audited += map(tuple, output.get("ottla_audit", ()))
    if "ottla_coverage" in output:
        _coverage_of(node.config).merge(output["ottla_coverage"])


def pytest_unconfigure(config: pytest.Config) -> None:
    pool = config.stash.get(_pool, None)
    if pool is not None:
        pool.close()
    shared = config.stash.get(_shared, None)
    if shared is not None:
        shared.close()


def _pool_of(config: pytest.Config) -> "TestbedPool":
    pool = config.stash.get(_pool, None)
    if pool is None:
        with _without_collections():
            from ottla.testing.testbed_pool import TestbedPool

        pool = config.stash[_pool] = TestbedPool(config)
    return pool


@contextmanager
def _without_collections() -> Generator[None]:
    """While modules come, Python's collector would look through them again and again, and find all of them in use."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _note(item: pytest.Item, run: "FixtureRun") -> None:
    """Of what a failure of the test reports."""
    item.stash[_runs] = (*item.stash.get(_runs, ()), run)


@pytest.fixture(scope="session")
def ottla(pytestconfig: pytest.Config) -> "Iterator[Kafka]":
    """The handle of the session's broker. Nothing is emptied, unless tests take `kafka` too."""
    with _pool_of(pytestconfig).session_handle() as handle:
        yield handle


@pytest.fixture
def _kafka_run(request: pytest.FixtureRequest) -> "Iterator[FixtureRun]":
    pool = _pool_of(request.config)
    from ottla.testing.fixtures import running_test

    with running_test(pool, request.node) as run:
        _note(request.node, run)
        yield run


@pytest.fixture
def kafka(_kafka_run: "FixtureRun") -> "Kafka":
    """The handle of a broker that is empty at the begin of the test, and emptied at its end."""
    return _kafka_run.kafka()


@pytest.fixture
def _cluster_run(request: pytest.FixtureRequest) -> "Iterator[FixtureRun]":
    pool = _pool_of(request.config)
    from ottla.testing.fixtures import cluster_options, running_test

    with running_test(pool, request.node, cluster_options(pool, request.node)) as run:
        _note(request.node, run)
        yield run


def _has_cluster_alone(request: pytest.FixtureRequest) -> bool:
    """Whether the test takes `kafka_cluster`, and not `kafka`: then the other fixtures are of the cluster."""
    names = request.node.fixturenames
    return "kafka_cluster" in names and "kafka" not in names


@pytest.fixture
def _test_run(request: pytest.FixtureRequest) -> "FixtureRun":
    run: FixtureRun = request.getfixturevalue("_cluster_run" if _has_cluster_alone(request) else "_kafka_run")
    return run


@pytest.fixture
def _test_handle(request: pytest.FixtureRequest) -> "Kafka":
    """Of a project's own fixture `kafka`, if it has one."""
    handle: Kafka = request.getfixturevalue("kafka_cluster" if _has_cluster_alone(request) else "kafka")
    return handle


@pytest.fixture
def kafka_async(_test_run: "FixtureRun") -> "KafkaAsync":
    """The same as `kafka`, with methods to await; of a test that has `kafka_cluster` and not `kafka`, the same as
    that."""
    return _test_run.kafka_async()


@pytest.fixture
def kafka_faults(_test_handle: "Kafka") -> "Faults":
    """Rules by which requests fail, wait or get lost. One that never acted is an error when the test ends."""
    return _test_handle.faults


@pytest.fixture
def kafka_clock(_test_handle: "Kafka") -> "Iterator[BrokerClock]":
    """Broker time, frozen at the begin of the test, and the machine's again at its end."""
    with _test_handle.clock.frozen() as clock:
        yield clock


@pytest.fixture
def kafka_bootstrap(request: pytest.FixtureRequest) -> str:
    """HOST:PORT, for tests that want nothing else."""
    given = _pool_of(request.config).given
    if given is not None and given.has_no_control:
        return given.bootstrap
    handle: Kafka = request.getfixturevalue("_test_handle")
    return handle.bootstrap


@pytest.fixture
def kafka_topic(_test_run: "FixtureRun") -> Callable[..., str]:
    """`kafka_topic(partitions=3)` creates a topic with a name of its own, and gives the name. Other keywords are
    configs of the topic, with `_` for `.`."""
    return _test_run.new_topic


@pytest.fixture
def kafka_group(_test_run: "FixtureRun") -> Callable[[], str]:
    """`kafka_group()` gives the id of a group that no other test has; it should have no members when the test ends."""
    return _test_run.new_group


@pytest.fixture
def kafka_cluster(_cluster_run: "FixtureRun") -> "Kafka":
    """The handle of three brokers, which copy all topics from each other; the test may kill and restart them."""
    return _cluster_run.kafka()


@pytest.fixture(scope="session")
def kafka_world(pytestconfig: pytest.Config) -> "Callable[[], AbstractContextManager[Kafka]]":
    """For Hypothesis: `with kafka_world() as kafka:` is an empty broker for each example."""
    pool = _pool_of(pytestconfig)
    from ottla.testing.fixtures import clean_world

    return partial(clean_world, pool, lambda: pytestconfig.stash[_running])

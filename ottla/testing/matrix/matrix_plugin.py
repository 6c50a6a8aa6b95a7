"""The part of the pytest plugin that runs tests again under faults; it is there with `--ottla-faults-matrix` alone."""

import os
import signal
import threading
import warnings
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import pytest
from _pytest.runner import runtestprotocol

from ottla.broker.config.options import ConfigError
from ottla.testing.matrix.matrix_faults import MatrixFault, chosen_faults
from ottla.testing.matrix.outcomes import MatrixReport, MatrixRow, RunHung, judge, reason
from ottla.testing.matrix.trial import Trial
from ottla.testing.waits import DEADLINE_FACTOR

if TYPE_CHECKING:
    from ottla.testing.testbed_pool import TestbedPool

Around: TypeAlias = Generator[None, object, object]
FIXTURES: Final = ("_kafka_run", "_test_run", "_test_handle", "kafka_cluster")
"""A test with none of them has no broker of its own to inject faults into."""
AGAIN_S: Final = 5
"""A run that does not end at its deadline is interrupted again so often: its cleaning up may hang too."""


class FaultsMatrix:
    def __init__(self, config: pytest.Config, pool: "Callable[[], TestbedPool]") -> None:
        """Raises UsageError."""
        self._config = config
        self._pool = pool
        self._report = MatrixReport()
        self._trial: Trial | None = None
        self._errors: list[BaseException] = []
        self._has_passed = False
        try:
            self._faults = chosen_faults(config.getini("ottla_faults_matrix"))
            self._deadline_s = float(config.getini("ottla_faults_matrix_deadline"))
        except (ConfigError, ValueError) as error:
            raise pytest.UsageError(str(error)) from None
        if self._deadline_s <= 0:
            raise pytest.UsageError("ottla_faults_matrix_deadline: expected seconds, more than 0")
        self._deadline_s *= float(os.environ.get(DEADLINE_FACTOR, 1))

    @property
    def _output(self) -> dict[str, Any] | None:
        """Of a worker of pytest-xdist: what it hands to the session that has started it."""
        return getattr(self._config, "workeroutput", None)

    @pytest.hookimpl
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        tests = sum(map(_has_broker, session.items))
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and self._output is None:
            times = f"each as often as {len(self._faults)} faults concern what it uses"
            reporter.write_line(f"ottla: faults matrix: {tests} tests with a broker run again, {times}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Around:
        """Around everything else that acts on a test, such as a timeout: that is of its first run."""
        if not _has_broker(item):
            return (yield)
        first = self._begin(Trial(None))
        try:
            result = yield
            if self._has_passed and not self._errors:
                met = [each for each in self._faults if each.is_met_by(first.apis, first.brokers)]
                for number, fault in enumerate(met, start=1):
                    # What is of the module or the session stays until the last run: pytest ends what its chain lacks.
                    following = cast("pytest.Item", item.parent) if number < len(met) else nextitem
                    self._report.rows.append(self._run(item, following, fault, first))
        finally:
            self._trial = self._pool().trial = None
        return result

    def _begin(self, trial: Trial) -> Trial:
        self._trial = self._pool().trial = trial
        self._errors, self._has_passed = [], False
        return trial

    # Within the phases of a test, whose reports catch what is raised.

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Around:
        with self._deadline():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Around:
        with self._deadline():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Around:
        with self._deadline():
            return (yield)

    def _deadline(self) -> AbstractContextManager[None]:
        """Of one phase of a run under a fault."""
        is_again = self._trial is not None and self._trial.is_again
        return interrupted_after(self._deadline_s) if is_again else nullcontext()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        del item
        report = yield
        if report.failed and call.excinfo is not None:
            self._errors.append(call.excinfo.value)
        elif report.when == "call":
            # Neither skipped nor expected to fail.
            self._has_passed = report.passed and not hasattr(report, "wasxfail")
        return report

    def _run(self, item: pytest.Item, following: pytest.Item | None, fault: MatrixFault, first: Trial) -> MatrixRow:
        trial, begin = self._begin(Trial(fault)), perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runtestprotocol(item, log=False, nextitem=following)
        error = self._errors[0] if self._errors else None
        usual = first.kinds()
        outcome = judge(error, trial.hits, trial.findings, usual)
        why = reason(error, trial.findings, usual)
        return MatrixRow(item.nodeid, fault.name, outcome, error is None, why, round(perf_counter() - begin, 3))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Of pytest-xdist: a worker has ended."""
        self._report.merge(getattr(node, "workeroutput", {}).get("ottla_faults_matrix", ()))

    @pytest.hookimpl
    def pytest_sessionfinish(self) -> None:
        output = self._output
        if output is not None:
            output["ottla_faults_matrix"] = self._report.plain()

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for line in self._report.lines():
            terminalreporter.write_line(line)
        path = self._config.invocation_params.dir / Path(str(self._config.getoption("ottla_faults_matrix")))
        try:
            self._report.write(path)
        except OSError as error:
            terminalreporter.write_line(f"ottla: faults matrix: {path} cannot be written: {error.strerror}")


def _has_broker(item: pytest.Item) -> bool:
    names: list[str] = getattr(item, "fixturenames", [])
    return any(each in names for each in FIXTURES)


@contextmanager
def interrupted_after(seconds: float) -> Generator[None]:
    """Raises RunHung in what runs longer, again and again. Only in the main thread, where Python handles signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before = signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _interrupt(number: int, frame: object) -> None:
    del number, frame
    raise RunHung("the run did not end within its deadline")

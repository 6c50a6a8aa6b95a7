"""Brokers that several tests of pytest share, and that nothing is emptied of between them: `ottla`, and those of
`broker_fixture`. They are judged when their scope ends.

A rule may be meant for a later test of the scope, and what one test has left unread another one may read: so the end of
a single test says nothing yet. Clients that are connected at the end of the scope are not named, for the broker ends
too, or with the session: no other test can meet them.
"""

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from ottla.testing.fixture_options import FixtureOptions
from ottla.testing.report import ReportMark, failure_sections
from ottla.testing.testbed import Testbed
from ottla.testing.verdicts import audited, end_rules, findings_of, warn_of


class ScopedBroker:
    """A plugin of pytest as long as the broker is there: it sees the tests that take the fixture."""

    def __init__(self, bed: Testbed, fixture: str) -> None:
        self.has_passed = True
        """All of its tests up to now."""
        self._bed = bed
        self._fixture = fixture
        self._mark = ReportMark.now(bed)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._mark = ReportMark.now(self._bed)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if self._fixture not in getattr(item, "fixturenames", ()):
            return report
        self.has_passed &= report.passed
        detail = item.config.getoption("ottla_report")
        if report.failed and report.when != "teardown" and detail != "off":
            bed, mark = self._bed, self._mark
            report.sections += bed.call(lambda: failure_sections(bed, mark, is_full=detail == "full"))
        return report


@contextmanager
def judged_at_its_end(bed: Testbed, fixture: str, options: FixtureOptions, config: pytest.Config) -> Generator[None]:
    """Fails the teardown of the fixture, which pytest counts as an error of the last test of its scope."""
    scoped = ScopedBroker(bed, fixture)
    config.pluginmanager.register(scoped)
    try:
        yield
    finally:
        config.pluginmanager.unregister(scoped)
    found, ended = findings_of(bed), end_rules(bed)
    if options.unused_faults == "warn":
        warn_of(ended.unused)
    wrong = list[str]()
    if scoped.has_passed:
        wrong += [*ended.failures, *(ended.unused if options.unused_faults == "error" else [])]
    wrong += audited(found, options.audit)
    if wrong:
        pytest.fail("\n".join([f"the broker of {fixture}, at its end:", *wrong]), pytrace=False)

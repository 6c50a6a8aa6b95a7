"""The brokers of a session of pytest: one for each configuration that tests ask for, kept until the session ends."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from ottla.testing.fixture_options import PROCESS, FixtureOptions, session_options
from ottla.testing.fixture_runs import AuditedTest
from ottla.testing.handle import Kafka
from ottla.testing.report import Section
from ottla.testing.scoped_brokers import judged_at_its_end
from ottla.testing.testbed import Testbed

if TYPE_CHECKING:
    from ottla.testing.coverage import Coverage
    from ottla.testing.matrix.trial import Trial
    from ottla.testing.remote.given_brokers import GivenBrokers
    from ottla.testing.remote.world import RemoteWorld
    from ottla.testing.shared.worker import SharedBrokers

BEDS_MAX: Final = 4
"""Of one session: the one that was used least recently ends."""


class AddressVariables:
    """The environment variables of `ottla_env`: during a test they have the address of its broker, and between two
    tests that of the session's broker, once there is one."""

    def __init__(self, names: Sequence[str]) -> None:
        self._before = {name: os.environ.get(name) for name in names}
        self._of_session: str | None = None
        # Of the test that runs: a test with two brokers has the address of the one that came last.
        self._of_test: list[str] = []

    def name_session_broker(self, bootstrap: str) -> None:
        self._of_session = bootstrap
        self._set()

    @contextmanager
    def naming(self, bootstrap: str) -> Generator[None]:
        """While a test has this broker."""
        self._of_test.append(bootstrap)
        self._set()
        try:
            yield
        finally:
            self._of_test.remove(bootstrap)
            self._set()

    def restore(self) -> None:
        """As before the session."""
        self._of_session = None
        self._set()

    def _set(self) -> None:
        bootstrap = self._of_test[-1] if self._of_test else self._of_session
        for name, before in self._before.items():
            value = before if bootstrap is None else bootstrap
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class TestbedPool:
    """The testbeds of a session."""

    __test__ = False

    def __init__(self, config: pytest.Config) -> None:
        self.options = session_options(config)
        self._config = config
        self.shared = _shared(config, self.options)
        """The brokers that this worker shares with others, with --ottla-shared."""
        self.environment = AddressVariables(config.getini("ottla_env"))
        # The least recently used first.
        self._beds: dict[tuple[object, ...], Testbed | RemoteWorld] = {}
        self.profiles: dict[str, None] = {}
        self.audited: list[AuditedTest] = []
        self.coverage = _coverage(config)
        self.given = _given(config)
        """Brokers that run already, with --ottla-bootstrap or --ottla-control."""
        if self.given is not None:
            self._take(self.given)
        self.world_sections: list[Section] = []
        """Of the block of `kafka_world` that has failed in the running test."""
        self._has_lent_session_broker = False
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
        if options.key == self.options.key:
            self.environment.name_session_broker(bootstrap_of(bed))
            if self._has_lent_session_broker:
                # Tests have changed it that emptied nothing.
                bed.contents = None
        return bed

    def opened(self, options: FixtureOptions) -> "Testbed | RemoteWorld":
        """Raises ConfigError, StartError."""
        bed = self._started(options)
        self.profiles[options.profile] = None
        return bed

    def _started(self, options: FixtureOptions) -> "Testbed | RemoteWorld":
        if options.where == PROCESS:
            from ottla.testing.remote.broker_process import BrokerProcess

            return BrokerProcess(options, self.coverage)
        bed = options.testbed()
        bed.wire.coverage = self.coverage
        bed.start()
        return bed

    def _take(self, given: "GivenBrokers") -> None:
        """Raises NotRunningError."""
        if not given.has_no_control:
            self._beds[self.options.key] = given.world(self.options.deadline, self.coverage)
        self.environment.name_session_broker(given.bootstrap)

    @contextmanager
    def session_handle(self) -> Generator[Kafka]:
        """Raises ConfigError, StartError. At the end the broker is judged, where it is in this process."""
        if self.shared is not None:
            self.environment.name_session_broker(self.shared.control.bootstrap)
            yield self.shared.kafka()
            return
        bed = self.get(self.options)
        self._has_lent_session_broker = True
        if isinstance(bed, Testbed):
            with judged_at_its_end(bed, "ottla", self.options, self._config):
                yield Kafka(bed)
        else:
            yield bed.kafka()

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
        self.environment.restore()


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


def bootstrap_of(bed: "Testbed | RemoteWorld") -> str:
    return bed.hosted.bootstrap if isinstance(bed, Testbed) else bed.control.bootstrap

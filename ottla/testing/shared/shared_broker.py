"""The brokers that the workers of a test run share, in the process that starts the workers, each with a control address
and a token of its own; and what one worker may do with them.

Topics, groups and rules of a worker are called `gw0-…`. What concerns the broker as a whole is refused with a sentence:
its clock, its brokers, resets, snapshots, seeds.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from ottla.testing.audit.auditor import Auditor
from ottla.testing.control.access import new_token
from ottla.testing.control.listener import ControlListener, opened_for_fixtures
from ottla.testing.control.problems import Problem
from ottla.testing.coverage import Coverage
from ottla.testing.faults.rule_values import RuleError, as_list
from ottla.testing.fixture_options import FixtureOptions
from ottla.testing.scope import ControlScope
from ottla.testing.shared.shared_audit import SEPARATOR, SharedAuditor
from ottla.testing.testbed import Testbed

KIND: Final = "shared"
OWN_BROKER: Final = 'a test that needs it gets a broker of its own by @pytest.mark.kafka(isolation="fresh")'
CONCERN_ALL: Final[Mapping[str, str]] = {
    "clock": "the clock is that of all workers that share the broker (--ottla-shared)",
    "brokers": "faults of brokers hit all workers that share them (--ottla-shared)",
    "links": "faults of links hit all workers that share the brokers (--ottla-shared)",
    "disks": "faults of disks hit all workers that share the brokers (--ottla-shared)",
    "scripts": "scripts break the brokers of all workers that share them (--ottla-shared)",
    "wire": "a capture has what all workers send (--ottla-shared)",
    "coverage": "what was used is counted for all workers (--ottla-shared)",
    "partitions": "leaders are moved for all workers that share the brokers (--ottla-shared)",
    "reset": "a reset empties what all workers share (--ottla-shared)",
    "snapshots": "a snapshot is of what all workers share (--ottla-shared)",
    "seed": "a seed has what all workers share (--ottla-shared)",
}
OWN_NAMES: Final = ("topic", "group", "client_id")
"""A rule has one of these, with the worker's prefix."""


class WorkerScope(ControlScope):
    def __init__(self, bed: Testbed, audit: SharedAuditor, prefix: str) -> None:
        super().__init__(bed)
        self.prefix = prefix
        self._own = audit.worker(prefix)

    @property
    def auditor(self) -> Auditor:
        return self._own

    def begin_test(self, name: str) -> None:
        self._own.test = name

    def end_test(self) -> None:
        self._own.test = ""

    def check(self, method: str, path: str, given: Mapping[str, str], body: Any) -> None:
        if method == "GET":
            return
        feature = path.split("/")[2]
        if feature in CONCERN_ALL:
            raise Problem(403, KIND, f"{CONCERN_ALL[feature]}: {OWN_BROKER}")
        if feature == "topics":
            self._check_topic(given.get("topic") or body.name)
        if feature == "groups" and not self.covers(given["group"]):
            why = f"the group {given['group'][:200]!r} may be another worker's (--ottla-shared)"
            raise Problem(403, KIND, f"{why}: kafka_group() gives names that begin with {self.prefix!r}")

    def _check_topic(self, name: str) -> None:
        if not self.covers(name):
            why = f"the topic {name[:200]!r} may be another worker's (--ottla-shared)"
            raise Problem(403, KIND, f"{why}: kafka_topic() gives names that begin with {self.prefix!r}")

    def check_rule(self, rule: Mapping[str, Any]) -> None:
        match: Any = rule.get("match", {})
        if not isinstance(match, Mapping):
            return
        fields = cast("Mapping[str, Any]", match)
        for name in ("connection", "peer"):
            if name in fields and fields[name] != "client":
                raise RuleError(f"{name}: other workers share the broker, a rule is of clients of this one alone")
        if not any(self._is_own(fields[name]) for name in OWN_NAMES if name in fields):
            raise RuleError(
                f"a rule for a broker that workers share names a topic, a group or a client_id with the prefix "
                f"{self.prefix!r} of its worker, and this one does not: {dict(fields)}"
            )

    def _is_own(self, value: Any) -> bool:
        given = as_list(value)
        return bool(given) and all(isinstance(each, str) and self.covers(each) for each in given)


class SharedBroker:
    def __init__(self, options: FixtureOptions, coverage: Coverage | None) -> None:
        """Raises ConfigError, StartError."""
        self.profile = options.profile
        bed = self._bed = options.testbed()
        self._audit = SharedAuditor(bed.hosted, bed.reader, bed.wire)
        bed.auditor = self._audit
        bed.wire.coverage = coverage
        self._listeners: list[ControlListener] = []
        bed.start()

    def open_for(self, worker_id: str) -> dict[str, str]:
        """What a worker gets to know: `url`, `token`, and the `prefix` of its names."""
        prefix, token = f"{worker_id}{SEPARATOR}", new_token()
        scope = WorkerScope(self._bed, self._audit, prefix)
        control = self._bed.run(opened_for_fixtures(self._bed, token, scope))
        self._listeners.append(control)
        return {"url": control.url, "token": token, "prefix": prefix}

    @property
    def uses_faults(self) -> bool:
        """Whether a worker has added rules."""
        return self._bed.hosted.fault_host.faults_if_used is not None

    def foreign_topics(self) -> list[str]:
        """Those that have a name of no worker."""
        return self._bed.call(self._audit.foreign_topics)

    def close(self) -> None:
        for control in self._listeners:
            self._bed.run(control.close())
        self._bed.stop()

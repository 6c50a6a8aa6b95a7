"""Requests to brokers in another process, and their answers as what the handle gives and raises."""

import time
from http.client import HTTPException
from typing import Any, Final

from ottla.protocol.errors import ErrorCode, UnknownTopicOrPartition, error_for
from ottla.testing.control.client import ask_control
from ottla.testing.control.documents import About
from ottla.testing.control.json_values import from_json, to_json
from ottla.testing.faults.rule_values import RuleError
from ottla.testing.surroundings.disks import DiskError
from ottla.testing.surroundings.links import LinkError
from ottla.testing.waits import DeadlineExceeded, Explanation
from ottla.testing.worker import NotRunningError

MS_PER_S: Final = 1000
WAIT_S_MAX: Final = 60.0
"""Of one request: a longer wait is several."""
NOT_THERE: Final = ("no-such-topic", "no-such-partition")


class NotServedHere(Exception):
    """Something was asked of brokers in another process that they are not asked for: one plain sentence."""


class RemoteRefusal(Exception):
    """A request was refused; `kind` ends the type of the problem document."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class RemoteControl:
    """The control address of the brokers. Its methods may be called from any thread."""

    def __init__(self, url: str, token: str | None, *, prefix: str = "", deadline_s: float = 5.0) -> None:
        """`prefix`: of the names of a worker that shares the brokers with others. `deadline_s`: of waits."""
        self._url, self._token = url, token
        self.prefix, self.deadline_s = prefix, deadline_s
        about: About = self.read(About, "GET", "/v1")
        self.bootstrap, self.cluster_id, self.node_ids = about.bootstrap, about.cluster_id, list(about.brokers)
        """`node_ids`: of the brokers that ran when this was made."""
        self.fault_seed = about.fault_seed
        self.uses_faults = False
        """Whether a test has asked for its rules."""

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer as of JSON. Raises what the handle of a broker in this process raises, and RemoteRefusal,
        NotServedHere; NotRunningError where there is no answer."""
        __tracebackhide__ = True
        try:
            status, document = ask_control(self._url, self._token, method, path, body)
        except (OSError, HTTPException) as error:
            raise NotRunningError(f"the brokers at {self._url} do not answer: {error}") from None
        if status >= 400:
            raise _error(document)
        return document

    def read(self, kind: type[Any], method: str, path: str, body: Any = None) -> Any:
        """The answer as a dataclass of `ottla.testing.control.documents`; `body` may be one, too."""
        __tracebackhide__ = True
        return from_json(kind, self.ask(method, path, to_json(body)))

    def wait(self, kind: str, within: float | None, **fields: Any) -> None:
        """Until the condition of this kind holds (docs/control.md). Raises DeadlineExceeded."""
        __tracebackhide__ = True
        whole_s = self.deadline_s if within is None else within
        ends_at = time.monotonic() + whole_s
        given = {name: value for name, value in fields.items() if value is not None}
        while True:
            left_s = max(ends_at - time.monotonic(), 0)
            within_ms = round(min(left_s, WAIT_S_MAX) * MS_PER_S)
            try:
                self.ask("POST", "/v1/wait", {"for": kind, **to_json(given), "within_ms": within_ms})
            except DeadlineExceeded as late:
                if left_s > WAIT_S_MAX:
                    continue
                lasted_s = max(late.within_s, whole_s)
                raise DeadlineExceeded(late.wanted, lasted_s, explanation_of(late)) from None
            return

    def check_node(self, node_id: int) -> None:
        """Raises NotRunningError for a broker that is none of the cluster's."""
        if node_id not in self.node_ids:
            known = ", ".join(map(str, self.node_ids))
            raise NotRunningError(f"no broker {node_id!r} is part of the cluster, only {known}")

    def not_served(self, what: str) -> NotServedHere:
        return NotServedHere(f"{what}: not of brokers in another process, which are asked over HTTP (docs/control.md)")


def explanation_of(late: DeadlineExceeded) -> Explanation:
    """Of the brokers, why it is late."""
    return Explanation(late.state, late.missing, late.hints)


def _error(document: Any) -> Exception:
    kind, detail = str(document["type"]).rpartition(":")[2], str(document["detail"])
    if kind == "deadline-exceeded":
        why = Explanation(document["state"], document["missing"], document["hints"])
        return DeadlineExceeded(document["wanted"], document["within_ms"] / MS_PER_S, why)
    if kind == "kafka-error":
        return error_for(ErrorCode[document["error"]], detail)
    if kind in NOT_THERE:
        return UnknownTopicOrPartition(detail)
    plain: dict[str, type[Exception]] = {
        "wrong-rule": RuleError,
        "wrong-link": LinkError,
        "wrong-disk": DiskError,
        "wrong-value": ValueError,
        "wrong-state": NotRunningError,
        "shared": NotServedHere,
        "not-served": NotServedHere,
    }
    return plain[kind](detail) if kind in plain else RemoteRefusal(kind, detail)

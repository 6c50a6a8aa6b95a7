"""The authorizer's lines as they are written: so many for each principal, whatever others are refused."""

import io
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.authorization.decision_log import REFUSALS_PER_SECOND, DecisionLog
from ottla.broker.logging import ROOT, LazyLog
from ottla.broker.runtime import Runtime
from ottla.security.acl import AclOperation, ResourceType
from ottla.security.authentication import Principal
from ottla.security.authorizer import Decision

REFUSED, ALLOWED = Decision(False, "no acl"), Decision(True, "super user")
NOISY, QUIET = Principal("User", "noisy"), Principal("User", "quiet")


class Written:
    def __init__(self) -> None:
        self._stream = io.StringIO()
        self.now_ms = 5_000
        self.log = LazyLog("json", "info", self._stream)
        runtime = SimpleNamespace(log=self.log, clock=SimpleNamespace(now_ms=lambda: self.now_ms))
        self._decisions = DecisionLog(cast("Runtime", runtime))

    def decide(self, decision: Decision, principal: Principal, times: int = 1) -> None:
        for number in range(times):
            who, topic = (principal, "127.0.0.1"), f"t{number}"
            self._decisions.decided(who, decision, AclOperation.READ, ResourceType.TOPIC, topic, "Fetch")

    def lines(self, event: str = "authorization") -> list[dict[str, Any]]:
        found = map(json.loads, self._stream.getvalue().splitlines())
        return [line for line in found if line["event"] == event]

    def of(self, principal: Principal) -> list[str]:
        return [line["resource"] for line in self.lines() if line["principal"] == str(principal)]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    # The log counts lines in seconds of its own.
    stopped: Callable[[], int] = lambda: 7_000_000_000  # noqa: E731
    monkeypatch.setattr("ottla.broker.logging.time", SimpleNamespace(monotonic_ns=stopped))
    return Written()


def test_who_is_refused_often_does_not_hide_who_is_refused_once(written: Written) -> None:
    """§68.6"""
    written.decide(REFUSED, NOISY, REFUSALS_PER_SECOND + 50)
    written.decide(REFUSED, QUIET)

    assert written.of(NOISY) == [f"TOPIC:LITERAL:t{number}" for number in range(REFUSALS_PER_SECOND)]
    assert written.of(QUIET) == ["TOPIC:LITERAL:t0"]


def test_those_left_out_of_every_principal_are_counted(written: Written) -> None:
    several = [Principal("User", f"u{number}") for number in range(30)]
    for each in several:
        written.decide(REFUSED, each, REFUSALS_PER_SECOND + 3)
    written.now_ms += 1_000
    for each in several:
        written.decide(REFUSED, each)

    counts = [(line["principal"], line["denied"]) for line in written.lines("authorizations not logged")]
    assert counts == [(str(each), 3) for each in several]


def test_what_is_allowed_does_not_hide_what_is_refused(written: Written) -> None:
    written.log.levels.set(ROOT, 10)
    written.decide(ALLOWED, QUIET, 1_000)
    written.decide(REFUSED, NOISY)

    assert len(written.of(QUIET)) < 1_000
    assert written.of(NOISY) == ["TOPIC:LITERAL:t0"]

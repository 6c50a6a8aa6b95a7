"""Decisions of the authorizer as requests get them: kept for a principal, and refusals where they fail."""

from typing import Any

import pytest

from ottla.broker.authorization.access import Authorization
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.security.acl import AclOperation, PatternType
from ottla.security.authentication import Principal
from ottla.security.authorizer import Authorizer
from tests.broker.authorization.world import TOPIC, Secured, acl
from tests.broker.requests import list_offsets
from tests.broker.wire import RecordingLog

DENIED = 29


async def test_a_decision_that_fails_is_a_refusal(
    world: Secured, log: RecordingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ST-35"""

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    alice = await world.client("alice")
    monkeypatch.setattr(Authorizer, "decide", fail)
    found = await alice.ask(FindCoordinatorRequest(key="crew"), 3)
    assert found.error_code == 30
    offsets = await alice.ask(list_offsets("orders", 0), 7)
    assert offsets.topics[0].partitions[0].error_code == DENIED
    failures = [fields["resource"] for event, fields in log.events if event == "an authorization failed unexpectedly"]
    assert failures == ["GROUP:LITERAL:crew", "TOPIC:LITERAL:orders"]


async def test_a_failed_decision_about_a_type_is_a_refusal(
    world: Secured, log: RecordingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ST-35: whether there is a topic that the sender may write to."""

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    await world.set_acls([acl("WRITE", TOPIC, "orders")])
    alice = await world.client("alice")
    monkeypatch.setattr(Authorizer, "decide_for_some", fail)
    begin = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    assert (await alice.ask(begin, 4)).error_code == 31
    assert "an authorization failed unexpectedly" in [event for event, _ in log.events]


async def test_a_failed_decision_among_many_is_a_refusal(world: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.set_acls([acl("DESCRIBE", TOPIC, "t-", pattern_type=PatternType.PREFIXED)])
    decide = Authorizer.decide

    def fails(self: Authorizer, principal: Any, host: str, operation: Any, kind: Any, name: str) -> Any:
        if name == "t-7":
            raise ZeroDivisionError
        return decide(self, principal, host, operation, kind, name)

    monkeypatch.setattr(Authorizer, "decide", fails)
    authorization = Authorization(world.broker.runtime, world.broker.metadata, frozenset())
    access = authorization.access(Principal("User", "alice"), "127.0.0.1", "Metadata")
    names = [f"t-{number}" for number in range(2_000)]
    assert access.denied_names(AclOperation.DESCRIBE, TOPIC, names) == {"t-7"}


async def test_decisions_kept_are_bounded(world: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.authorization.access.DECISIONS_MAX", 10)
    monkeypatch.setattr("ottla.broker.authorization.access.VIEWS_MAX", 2)
    authorization = Authorization(world.broker.runtime, world.broker.metadata, frozenset())
    for number in range(5):
        access = authorization.access(Principal("User", f"u{number}"), "127.0.0.1", "Metadata")
        for name in range(30):
            assert not access.allows_topic(AclOperation.READ, f"t{name}")
            assert not access.allows_topic(AclOperation.READ, "t" * 30_000 + str(name))
        assert 0 < len(access.view.decisions) <= 10
        assert all(len(name) <= 1_000 for *_, name in access.view.decisions)
    assert len(authorization._views) <= 2


async def test_decision_about_a_type_is_kept(world: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at all ACLs of the type: of 100,000 that takes 30 ms."""
    decide, asked = Authorizer.decide_for_some, []

    def counted(self: Authorizer, principal: Any, host: str, operation: Any, kind: Any) -> Any:
        asked.append(principal.name)
        return decide(self, principal, host, operation, kind)

    monkeypatch.setattr(Authorizer, "decide_for_some", counted)
    alice, begin = await world.client("alice"), InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    codes = [(await alice.ask(begin, 4)).error_code for _ in range(3)]
    await world.set_acls([acl("WRITE", TOPIC, "orders")])
    codes += [(await alice.ask(begin, 4)).error_code for _ in range(3)]

    assert (codes, asked) == ([31, 31, 31, 0, 0, 0], ["alice", "alice"])


async def test_one_who_logs_in_again_is_asked_about_as_it_is_now(world: Secured) -> None:
    """ST-7: decisions belong to a principal, not to its connection."""
    await world.set_acls([acl("DESCRIBE", TOPIC, "orders")])
    authorization = Authorization(world.broker.runtime, world.broker.metadata, frozenset())
    for name, is_allowed in (("alice", True), ("bob", False), ("alice", True)):
        access = authorization.access(Principal("User", name), "127.0.0.1", "Metadata")
        assert access.allows_topic(AclOperation.DESCRIBE, "orders") == is_allowed

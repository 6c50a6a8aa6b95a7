"""Logins, renewals and denials are counted, by what operators search for and nothing that clients choose."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.broker.admin.metrics.request_source import SecuritySource
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.admin.test_metrics import scraped, value
from tests.broker.authorization.world import secured
from tests.broker.requests import fetch_offsets, list_offsets

ADMIN = {"ottla.admin.listener": "127.0.0.1:0", "connection.failed.authentication.delay.ms": "0"}


async def test_logins_are_counted_by_mechanism_and_result(tmp_path: Path) -> None:
    async with secured(tmp_path, ADMIN) as world:
        await world.client("alice")
        await world.client("bob")
        wrong = await world.asking.client()
        await wrong.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        await wrong.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0no"), 1)
        stranger = await world.asking.client()
        await stranger.ask(SaslHandshakeRequest(mechanism='X"\n'), 1)
        found = await scraped(world.broker.admin_url)

    logins = {labels: count for (name, labels), count in found.items() if name == "ottla_authentication_total"}
    of_inside = {"broker": 1, "listener": "INSIDE"}
    assert value(found, "authentication_total", **of_inside, mechanism="PLAIN", result="success") == 2
    assert value(found, "authentication_total", **of_inside, mechanism="PLAIN", result="failure") == 1
    assert value(found, "authentication_total", **of_inside, mechanism="_other", result="failure") == 1
    assert len(logins) == 3
    assert not any(name == "ottla_reauthentication_total" for name, _ in found)


def test_renewed_sessions_are_counted_apart_from_logins() -> None:
    ended = Counter({("login", "PLAIN", "success"): 3, ("renewal", "PLAIN", "failure"): 2})
    server: Any = SimpleNamespace(sasl={"INSIDE": SimpleNamespace(ended=ended)}, tls=None)
    families = SecuritySource(server, None).families

    of_plain = 'listener="INSIDE",mechanism="PLAIN"'
    assert list(families["ottla_authentication_total"]()) == [(f'{of_plain},result="success"', 3)]
    assert list(families["ottla_reauthentication_total"]()) == [(f'{of_plain},result="failure"', 2)]


async def test_denials_are_counted_whether_they_are_logged_or_not(tmp_path: Path) -> None:
    names = [f"secret-{number}" for number in range(1_500)]
    async with secured(tmp_path, ADMIN) as world:
        alice = await world.client("alice")
        await alice.ask(list_offsets("secret", 0), 7)
        await alice.ask(list_offsets("secret", 0), 7)
        request = list_offsets("secret", 0)
        (topic,) = request.topics
        request.topics = [type(topic)(name=name, partitions=topic.partitions) for name in names]
        await alice.ask(request, 7)
        await alice.ask(fetch_offsets("shop", "orders"), 7)
        found = await scraped(world.broker.admin_url)

    assert value(found, "authorization_denied_total", broker=1, operation="DESCRIBE", resource_type="TOPIC") == 1_502
    assert value(found, "authorization_denied_total", broker=1, operation="DESCRIBE", resource_type="GROUP") == 1


async def test_broker_without_an_authorizer_denies_nothing(tmp_path: Path) -> None:
    async with secured(tmp_path, {**ADMIN, "authorizer.class.name": ""}) as world:
        alice = await world.client("alice")
        await alice.ask(list_offsets("secret", 0), 7)
        found = await scraped(world.broker.admin_url)

    assert not any(name == "ottla_authorization_denied_total" for name, _ in found)

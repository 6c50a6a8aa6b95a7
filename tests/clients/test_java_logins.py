"""Kafka's Java clients log in, renew their sessions, and say what they are refused (SEC06, SEC12, SEC14, SEC24)."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import BrokerThread
from ottla.broker.server.close_reasons import CloseReason
from tests.broker.authorization.world import SECURED
from tests.cli.embedded import output_of
from tests.clients.test_acls import GROUP, READ, TOPIC, WRITE, let_alice, make_topic
from tests.clients.test_sasl import MECHANISMS, PASSWORD, USER, address, broker_with_sasl
from tests.kit.java_clients import JavaClients
from tests.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

WAIT_S = 30
REAUTHENTICATION_MS = 3_000
RENEWALS = 5
PACKAGE = "org.apache.kafka.common.security"
STRINGS = {"group.id": "crew", "auto.offset.reset": "earliest"}


def of_java(bootstrap: str, mechanism: str, user: str, password: str) -> dict[str, object]:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{PACKAGE}.{module} required username="{user}" password="{password}";',
    }


@pytest.fixture(scope="module")
def java() -> Iterator[JavaClients]:
    clients = JavaClients()
    yield clients
    clients.stop()


def exchange(java: JavaClients, config: dict[str, object], name: str) -> None:
    """One record there and back."""
    with java.producer(f"producer-{name}", config), java.member(f"member-{name}", "t", config | STRINGS):
        assert java.send(f"producer-{name}", "t", name).startswith("sent ")
        wait_for(lambda: f"read {name}" in java.said(f"member-{name}"), WAIT_S, f"{name} was not read")


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_java_logs_in(java: JavaClients, tmp_path: Path, mechanism: str) -> None:
    """SEC06; and a wrong password is told apart from a broker that does not answer."""
    async with broker_with_sasl(tmp_path) as broker:
        ended = broker.server.sasl["SASL"].ended
        await asyncio.to_thread(exchange, java, of_java(address(broker), mechanism, USER, PASSWORD), mechanism)
        assert ended.keys() == {("login", mechanism, "success")}

        def refused() -> str:
            wrong = of_java(address(broker), mechanism, USER, "wrong")
            with java.producer(f"wrong-{mechanism}", wrong):
                return java.send(f"wrong-{mechanism}", "t", "x")

        assert await asyncio.to_thread(refused) == "failed SaslAuthenticationException"


@pytest.mark.slow
async def test_java_renews_its_session_while_it_produces(java: JavaClients, tmp_path: Path) -> None:
    """SEC12: the application sees nothing of it."""
    settings = {"connections_max_reauth_ms": str(REAUTHENTICATION_MS)}
    async with broker_with_sasl(tmp_path, **settings) as broker:
        ended = broker.server.sasl["SASL"].ended

        def produce_until_renewed() -> list[str]:
            deadline = time.monotonic() + RENEWALS * REAUTHENTICATION_MS / 1000 + WAIT_S
            with java.producer("renewing", of_java(address(broker), "SCRAM-SHA-512", USER, PASSWORD)):
                while ended["renewal", "SCRAM-SHA-512", "success"] < RENEWALS:
                    assert time.monotonic() < deadline, f"renewed too seldom: {ended}"
                    java.send("renewing", "t", "x")
            return java.said("renewing")

        said = await asyncio.to_thread(produce_until_renewed)

        assert [line for line in said if line.startswith("failed")] == []
        assert ended["renewal", "SCRAM-SHA-512", "failure"] == 0
        assert ("SASL", CloseReason.SESSION_EXPIRED) not in broker.server.closed


@pytest.fixture
def secured() -> Iterator[BrokerThread]:
    with BrokerThread(settings=SECURED | {"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker


def as_admin(tmp_path: Path) -> list[str]:
    """Options of a command."""
    password = tmp_path / "password"
    password.write_text("pw")
    password.chmod(0o600)
    return ["--user", "admin", "--password-file", str(password), "--sasl-mechanism", "PLAIN"]


def of_user(broker: BrokerThread, user: str) -> dict[str, object]:
    return of_java(broker.bootstrap, "PLAIN", user, "pw")


def test_java_says_what_is_denied(java: JavaClients, secured: BrokerThread) -> None:
    """SEC14: alice may, bob may not."""
    make_topic(secured)
    let_alice(secured, (TOPIC, "orders", WRITE), (TOPIC, "orders", READ), (GROUP, "crew", READ))
    with java.producer("alice", of_user(secured, "alice")), java.producer("bob", of_user(secured, "bob")):
        assert java.send("alice", "orders", "hers") == "sent 0 0"
        assert java.send("bob", "orders", "his") in (
            "failed TopicAuthorizationException",
            # An idempotent producer is refused first, having no topic at all.
            "failed ClusterAuthorizationException",
        )
    with java.member("reading-alice", "orders", of_user(secured, "alice") | STRINGS):
        wait_for(lambda: "read hers" in java.said("reading-alice"), WAIT_S, "alice reads nothing")
    with java.member("reading-bob", "orders", of_user(secured, "bob") | STRINGS):
        wait_for(lambda: bool(java.said("reading-bob")[1:]), WAIT_S, "bob is not refused")
        assert java.said("reading-bob")[1] == "error TopicAuthorizationException"


def test_java_creates_beyond_its_quota_after_a_rest(java: JavaClients, secured: BrokerThread, tmp_path: Path) -> None:
    """SEC24: the bucket of 11 partitions is overdrawn by the second topic, and its debt of 5 is paid in 5 s. The admin
    client hears of it for the third, and asks again by itself."""
    rate = ("--add-config", "controller_mutation_rate=1")
    output_of(secured, "quotas", "alter", "user=admin", *rate, *as_admin(tmp_path))
    began_s = time.monotonic()
    said = java.create_topics("admin", {"a": 8, "b": 8, "c": 1}, of_user(secured, "admin"))

    assert said == "created"
    assert time.monotonic() - began_s >= 4.5

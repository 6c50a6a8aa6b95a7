"""What goes by broker time only where a test includes it: tokens and sessions of logins, and replication."""

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from ottla.protocol.client import parse_response
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.scram import ScramClient
from ottla.security.scram_credential import ScramHash
from ottla.testing.async_handle import KafkaAsync
from ottla.testing.clock.included import NEVER_MS, IncludedClock, IncludedLoginClock
from ottla.testing.clock.timeline import BrokerTimeline, NodeClock
from ottla.testing.handle import Kafka
from ottla.testing.hosting import Hosting
from ottla.testing.profile import cluster_settings, profile_settings
from ottla.testing.testbed import Testbed
from tests.fakes.frames import build_request_frame
from tests.kit.clock.test_brokers import survives_eight_days
from tests.kit.clock.world import Machine
from tests.kit.clusters import Replicated, three_brokers
from tests.security.tokens import AUDIENCE, ISSUER, claims, key_set, public_jwk, token
from tests.waiting import wait_for

LIFETIME_MS = 3_600_000
PASSWORD = "wonderland"
ANSWERED_WITHIN_S = 20
# Those of tokens that are made now.
TOKEN_LIFETIME_S = 300


class Login:
    """A connection to the listener with SASL."""

    def __init__(self, address: str, mechanism: str, bearer: str = "") -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), ANSWERED_WITHIN_S)
        self._mechanism, self._bearer = mechanism, bearer

    def log_in(self) -> Any:
        """The answer to the last token."""
        assert self._call(SaslHandshakeRequest(mechanism=self._mechanism), SaslHandshakeResponse, 1).error_code == 0
        match self._mechanism:
            case "PLAIN":
                return self._authenticate(f"\0alice\0{PASSWORD}".encode())
            case "OAUTHBEARER":
                return self._authenticate(f"n,,\x01auth=Bearer {self._bearer}\x01\x01".encode())
            case _:
                client = ScramClient(ScramHash.SHA_256, "alice", PASSWORD, "nonce-of-the-client")
                return self._authenticate(client.final(self._authenticate(client.first()).auth_bytes))

    def is_served(self) -> bool:
        return self._call(DescribeClusterRequest(), DescribeClusterResponse, 0) is not None

    def close(self) -> None:
        self._socket.close()

    def _authenticate(self, sent: bytes) -> Any:
        return self._call(SaslAuthenticateRequest(auth_bytes=sent), SaslAuthenticateResponse, 1)

    def _call(self, request: Any, response: Any, version: int) -> Any:
        """None where the connection was closed in place of an answer."""
        self._socket.sendall(build_request_frame(request, version, 7, "c"))
        size = self._received(4)
        frame = self._received(int.from_bytes(size, "big")) if size else b""
        return parse_response(response, version, frame) if frame else None

    def _received(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                more = self._socket.recv(size - len(data))
            except ConnectionError:
                return b""
            if not more:
                return b""
            data += more
        return data


@pytest.fixture(scope="module")
def guarded_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    directory: Path = tmp_path_factory.mktemp("keys")
    (directory / "keys.json").write_bytes(key_set(public_jwk("RSA")))
    (directory / "users").write_text(f"alice:{PASSWORD}\n")
    (directory / "users").chmod(0o600)
    settings = {
        **profile_settings("test"),
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "connections.max.reauth.ms": LIFETIME_MS,
        "connection.failed.authentication.delay.ms": 0,
        "listener.name.sasl.plain.users.file": str(directory / "users"),
        "sasl.oauthbearer.jwks.endpoint.url": (directory / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    bed = Testbed(hosting=Hosting.on_free_ports(settings)._replace(host=None, port=None), deadline=20)
    bed.start()
    yield bed
    bed.stop()


@pytest.fixture
def guarded(guarded_bed: Testbed) -> Iterator[Kafka]:
    yield Kafka(guarded_bed)
    guarded_bed.run(guarded_bed.reset())


@pytest.fixture
def address(guarded_bed: Testbed) -> str:
    (parts,) = guarded_bed.hosted.parts().values()
    return next(each.address for each in parts.listeners.endpoints if each.name == "SASL")


def make_user(kafka: Kafka) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    wanted = UserScramCredentialUpsertion("alice", info, PASSWORD.encode())
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.alter_user_scram_credentials([wanted])["alice"].result(20)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_sessions_end_by_broker_time_where_included(guarded: Kafka, address: str, mechanism: str) -> None:
    make_user(guarded)
    guarded.clock.freeze()
    login = Login(address, mechanism)
    assert login.log_in().session_lifetime_ms == LIFETIME_MS

    guarded.clock.advance("2h")
    assert login.is_served(), "it has not lasted an hour of the machine's time"
    guarded.clock.include({"tokens"})
    guarded.clock.advance("59m")
    assert login.is_served()
    guarded.clock.advance("2m")

    assert not login.is_served()
    login.close()


def test_session_that_is_over_is_renewed_and_ends_again(guarded: Kafka, address: str) -> None:
    guarded.clock.freeze()
    guarded.clock.include({"tokens"})
    login = Login(address, "PLAIN")
    login.log_in()
    for _ in range(2):
        guarded.clock.advance("61m")
        assert login.log_in().session_lifetime_ms == LIFETIME_MS
        assert login.is_served()
    guarded.clock.advance("1h")

    assert not login.is_served()
    login.close()


def test_reset_leaves_sessions_what_is_left_of_them(guarded: Kafka, address: str) -> None:
    guarded.clock.include({"tokens"})
    login = Login(address, "PLAIN")
    login.log_in()
    guarded.clock.advance("59m")

    guarded.clock.reset()

    assert guarded.clock.included == frozenset()
    guarded.clock.advance("2h")
    assert login.is_served()
    guarded.clock.include({"tokens"})
    guarded.clock.advance("2m")
    assert not login.is_served()
    login.close()


def test_tokens_expire_by_broker_time_where_included(guarded: Kafka, address: str) -> None:
    now_s = int(time.time())
    bearer = token(claims(iat=now_s, exp=now_s + TOKEN_LIFETIME_S))
    guarded.clock.freeze()
    guarded.clock.advance("1h")
    login = Login(address, "OAUTHBEARER", bearer)
    assert 0 < login.log_in().session_lifetime_ms <= TOKEN_LIFETIME_S * 1000
    assert login.is_served()
    login.close()

    guarded.clock.include({"tokens"})

    refused = Login(address, "OAUTHBEARER", bearer)
    assert b"invalid_token" in refused.log_in().auth_bytes
    refused.close()


def test_session_of_a_token_ends_with_it(guarded: Kafka, address: str) -> None:
    now_s = int(time.time())
    guarded.clock.freeze()
    guarded.clock.include({"tokens"})
    login = Login(address, "OAUTHBEARER", token(claims(iat=now_s, exp=now_s + TOKEN_LIFETIME_S)))
    login.log_in()
    guarded.clock.advance("4m")
    assert login.is_served()
    guarded.clock.advance("90s")

    assert not login.is_served()
    login.close()


# Replication.


@pytest.fixture(scope="module")
def three_bed() -> Iterator[Testbed]:
    bed = three_brokers(cluster_settings(3))
    yield bed
    bed.stop()


@pytest.fixture
def three(three_bed: Testbed) -> Iterator[Kafka]:
    yield Kafka(three_bed)
    three_bed.run(three_bed.reset())


def test_followers_lag_by_broker_time_where_included(three: Kafka) -> None:
    """With Kafka's `replica.lag.time.max.ms` of half a minute."""
    cluster = Replicated(three)
    late, other = cluster.followers
    three.links.lossless_pause(cluster.leader, late)
    three.produce("orders", [b"late"], acks=1)

    fired = three.clock.advance("10m")
    assert set(cluster.partition.isr) == {cluster.leader, late, other}
    assert "replica-lag" not in [each.kind for each in fired]
    three.clock.include({"replication"})
    fired = three.clock.advance("1m")

    assert "replica-lag" in [each.kind for each in fired]
    cluster.wait_for_isr(cluster.leader, other)
    three.links.heal()
    three.wait_until_in_sync("orders")


def test_followers_that_are_in_sync_stay_so(three: Kafka) -> None:
    three.clock.include({"replication"})

    survives_eight_days(three)

    assert three.clock.included == {"replication"}


def test_leaders_are_balanced_by_broker_time_where_included(three: Kafka) -> None:
    """With Kafka's `leader.imbalance.check.interval.seconds` of five minutes."""
    cluster = Replicated(three)
    preferred = cluster.partition.describe().replicas[0]
    three.brokers[preferred].kill()
    three.wait(lambda _: cluster.partition.leader not in (None, preferred), describe="another broker leads")
    three.brokers[preferred].restart()
    three.wait_until_in_sync("orders")

    three.clock.advance("10m")
    assert cluster.partition.leader != preferred
    three.clock.include({"replication"})

    def is_balanced() -> bool:
        """At a check that finds it in sync: ten minutes at once may be longer than a follower may lag behind."""
        three.clock.advance("10m")
        return cluster.partition.leader == preferred

    wait_for(is_balanced, 30, "the preferred broker does not lead again")


def test_broker_that_starts_again_has_it_included_too(three: Kafka, three_bed: Testbed) -> None:
    three.clock.include({"replication"})
    three.brokers[2].kill()
    three.brokers[2].restart()
    three.clock.advance("1d")

    now_ms = [parts.runtime.lag_clock.now_ms() for parts in three_bed.hosted.parts().values()]
    machine_ms = three_bed.clock.timeline.machine.now_ms()
    assert all(each - machine_ms > 80_000_000 for each in now_ms), now_ms


# The handle.


def test_what_is_included_is_shown_and_ends(handle: Kafka, bed: Testbed) -> None:
    assert handle.clock.included == frozenset()
    handle.clock.include({"tokens", "replication"})
    handle.snapshot("both")
    handle.clock.include(["tokens"])
    assert handle.clock.included == {"tokens"}
    assert "replica-lag" not in [each.kind for each in handle.clock.pending()]

    handle.restore("both")
    assert handle.clock.included == {"tokens", "replication"}
    (job,) = [each for each in handle.clock.pending() if each.kind == "replica-lag"]
    assert 0 <= job.in_ms <= 15_000
    handle.reset()
    assert handle.clock.included == frozenset()
    for wrong, says in (({"lags"}, "there is no 'lags' to include"), ("tokens", "expected a set")):
        with pytest.raises(ValueError, match=says):
            handle.clock.include(wrong)

    async def included() -> frozenset[str]:
        clock = KafkaAsync(bed).clock
        await clock.include({"tokens"})
        return await clock.included()

    assert asyncio.run(included()) == {"tokens"}


# Their clocks.


class Times:
    def __init__(self) -> None:
        self.machine = cast("Any", Machine())
        self.timeline = BrokerTimeline(self.machine)
        self.logins = IncludedLoginClock(self.machine, NodeClock(self.timeline, 0), self.timeline)

    def left_ms(self, deadline_ms: int) -> int:
        """Of the machine's time."""
        return self.logins.transport_ms(deadline_ms) - int(self.machine.now_ms())


def test_deadlines_of_logins_follow_the_time_that_they_go_by() -> None:
    times = Times()
    deadline_ms = times.logins.now_ms() + 1000
    times.timeline.freeze()
    times.machine.pass_ms(400)
    assert times.left_ms(deadline_ms) == 600, "it goes by the machine's time"

    times.logins.include(True)
    times.machine.pass_ms(5000)
    assert times.logins.transport_ms(deadline_ms) == NEVER_MS, "time stands"
    times.timeline.resume()
    times.timeline.set_rate(2)
    assert times.left_ms(deadline_ms) == 300
    times.machine.pass_ms(300)
    assert times.left_ms(deadline_ms) < 0, "it has come"


def test_an_included_clock_goes_on_from_where_it_is() -> None:
    machine, broker = (SimpleNamespace(now_ns=lambda: 0, wall_ms=lambda: 0) for _ in range(2))
    clock = IncludedClock(cast("Any", machine), cast("Any", broker))
    machine.now_ns, broker.now_ns, broker.wall_ms = lambda: 7_000_000, lambda: 100_000_000, lambda: 5

    before_ms = clock.now_ms()
    clock.include(True)
    assert (before_ms, clock.now_ms(), clock.wall_ms()) == (7, 7, 5)
    broker.now_ns = lambda: 103_000_000
    assert clock.now_ms() == 10
    clock.include(False)
    assert clock.now_ms() == 10

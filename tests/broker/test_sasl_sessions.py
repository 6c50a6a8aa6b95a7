"""Sessions that end, and clients that log in again on the same connection (§54.14–54.17)."""

import struct

import pytest

from ottla.broker.server.close_reasons import CloseReason
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import DescribeClusterResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.security.authentication import Principal
from tests.broker.sasl_world import (
    ASK_FRAME,
    ASK_VERSION,
    GOOD,
    HANDSHAKE,
    RAW_HANDSHAKE,
    WRONG,
    SaslClient,
    SaslWorld,
    raw_frame,
    token_frame,
)

ALICE = Principal("User", "alice")
LIFETIME_MS = 10_000
PAUSE_MS = 1_000
DELAY_MS = 100


@pytest.fixture
def world() -> SaslWorld:
    return SaslWorld(reauthentication_ms=LIFETIME_MS)


@pytest.fixture
def client(world: SaslWorld) -> SaslClient:
    """One that has logged in."""
    client = world.connect()
    assert client.login().session_lifetime_ms == LIFETIME_MS
    return client


def test_a_request_after_the_session_is_closed_without_an_answer(world: SaslWorld, client: SaslClient) -> None:
    world.pass_ms(LIFETIME_MS)
    assert client.ask()
    world.pass_ms(1)

    assert not client.ask()

    assert client.is_closed
    assert world.server.closed == {("SASL", CloseReason.SESSION_EXPIRED): 1}


def test_st8_an_idle_connection_is_not_closed_by_expiry(world: SaslWorld, client: SaslClient) -> None:
    world.pass_ms(10 * LIFETIME_MS)
    assert not client.is_closed


@pytest.mark.parametrize("step_ms", [-(10**9), 10**9])
def test_st8_the_wall_clock_ends_no_session(world: SaslWorld, client: SaslClient, step_ms: int) -> None:
    world.wall_ms += step_ms
    assert client.ask()


def test_clients_that_learn_no_lifetime_are_cut_off_too(world: SaslWorld) -> None:
    client = world.connect()
    client.handshake()
    client.authenticate(version=0)
    world.pass_ms(LIFETIME_MS + 1)
    assert not client.ask()
    assert client.is_closed


@pytest.mark.parametrize("passed_ms", [PAUSE_MS, LIFETIME_MS, 3 * LIFETIME_MS])
def test_client_logs_in_again_before_or_after_the_end(world: SaslWorld, client: SaslClient, passed_ms: int) -> None:
    world.pass_ms(passed_ms)

    assert client.login().session_lifetime_ms == LIFETIME_MS

    world.pass_ms(LIFETIME_MS)
    assert client.ask()
    assert world.asked == [ALICE]
    assert world.server.sasl["SASL"].ended == {("login", "PLAIN", "success"): 1, ("renewal", "PLAIN", "success"): 1}


def test_client_may_log_in_again_by_bare_tokens(world: SaslWorld, client: SaslClient) -> None:
    world.pass_ms(PAUSE_MS)
    client.handshake(version=0)
    client.send(raw_frame())
    assert client.receive() == bytes(4)
    assert client.ask()


def test_too_soon_the_handshake_is_an_error_and_nothing_else(world: SaslWorld, client: SaslClient) -> None:
    world.pass_ms(PAUSE_MS - 1)
    assert client.handshake().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.ask()


def test_without_a_lifetime_there_is_no_renewal() -> None:
    world = SaslWorld()
    client = world.connect()
    assert client.login().session_lifetime_ms == 0
    world.pass_ms(PAUSE_MS)
    assert client.handshake().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.ask()


def test_other_requests_wait_for_the_end_of_the_renewal(world: SaslWorld, client: SaslClient) -> None:
    world.pass_ms(PAUSE_MS)
    client.handshake()
    client.send(ASK_FRAME)
    world.pass_ms(DELAY_MS)
    assert client.answer(DescribeClusterResponse, ASK_VERSION).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.is_closed
    assert world.asked == []


@pytest.mark.parametrize(
    ("mechanism", "token", "sentence"),
    [
        (
            "SCRAM-SHA-256",
            b"n,,n=alice,r=abc",
            "SASL mechanism 'SCRAM-SHA-256' does not match the one of the session, PLAIN",
        ),
        ("PLAIN", b"\0bob\0builder", "Cannot change principals during re-authentication"),
        ("PLAIN", WRONG, "Authentication failed: Invalid username or password"),
    ],
)
def test_renewal_that_fails_ends_the_connection(
    world: SaslWorld, client: SaslClient, mechanism: str, token: bytes, sentence: str
) -> None:
    world.pass_ms(PAUSE_MS)
    assert client.handshake(mechanism).error_code == 0
    assert client.authenticate(token) is None
    world.pass_ms(DELAY_MS)
    assert client.answer(SaslAuthenticateResponse, 1).error_message == sentence
    assert client.is_closed
    failed = ("renewal", mechanism, "failure")
    assert world.server.sasl["SASL"].ended == {("login", "PLAIN", "success"): 1, failed: 1}


def test_unknown_mechanism_ends_a_session_after_the_delay(world: SaslWorld, client: SaslClient) -> None:
    world.pass_ms(PAUSE_MS)
    assert client.handshake("GSSAPI") is None
    world.pass_ms(DELAY_MS)
    assert struct.unpack_from(">iih", client.receive())[2] == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert client.is_closed


@pytest.mark.parametrize("handshake", [HANDSHAKE, RAW_HANDSHAKE])
@pytest.mark.parametrize("passed_ms", [PAUSE_MS, LIFETIME_MS + 1])
def test_a_renewal_may_be_cut_anywhere_and_pipelined(handshake: bytes, passed_ms: int) -> None:
    token = raw_frame() if handshake is RAW_HANDSHAKE else token_frame(GOOD)
    renewal = handshake + token + ASK_FRAME * 2
    # What has come before the end is served without a renewal.
    stream = (ASK_FRAME if passed_ms < LIFETIME_MS else b"") + renewal
    for cut in range(1, len(stream)):
        world = SaslWorld(reauthentication_ms=LIFETIME_MS)
        client = world.connect()
        client.login()
        world.pass_ms(passed_ms)
        client.send(stream[:cut])
        client.send(stream[cut:])
        assert world.asked == [ALICE] * (3 if passed_ms < LIFETIME_MS else 2), cut


def test_frames_behind_a_handshake_too_soon_are_looked_at_again(world: SaslWorld) -> None:
    """The session has ended within the pause: the request behind the handshake is not served."""
    world = SaslWorld(reauthentication_ms=10)
    client = world.connect()
    client.login()
    world.pass_ms(PAUSE_MS)
    client.login()
    world.pass_ms(11)
    client.send(HANDSHAKE + ASK_FRAME)
    assert world.asked == []
    assert client.is_closed


def test_requests_before_the_renewal_are_answered_first(world: SaslWorld, client: SaslClient) -> None:
    """They keep the principal that they came with, and the answers their order."""
    world.parks = True
    world.pass_ms(PAUSE_MS)
    client.send(ASK_FRAME + HANDSHAKE + token_frame())
    (waiting,) = world.parked
    assert client.receive() == b"", "the answers of the renewal are behind it"
    assert waiting.principal == ALICE

    waiting.complete(DescribeClusterResponse(cluster_id="cluster"))
    world.end_event()

    assert client.answer(DescribeClusterResponse, ASK_VERSION).cluster_id == "cluster"
    assert client.receive()
    assert client.answer(SaslAuthenticateResponse, 1).session_lifetime_ms == LIFETIME_MS

"""Every state of a connection that logs in by SASL, and what it accepts there (§54.2–54.13)."""

import struct
import tracemalloc

import pytest

from ottla.broker.server.apis import APIS
from ottla.broker.server.close_reasons import CloseReason
from ottla.broker.server.connection_interfaces import HELD_BY_START
from ottla.broker.server.sasl_gate import LOGIN_TIMEOUT_MS, REQUESTS_MAX
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.describe_cluster import DescribeClusterResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.security.authentication import ANONYMOUS, Principal
from tests.broker.sasl_world import (
    ASK_FRAME,
    ASK_VERSION,
    GOOD,
    HANDSHAKE,
    PLAINTEXT,
    RAW_HANDSHAKE,
    VERSIONS,
    WRONG,
    SaslClient,
    SaslWorld,
    raw_frame,
    token_frame,
)

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
NAMED = ApiVersionsRequest(client_software_name="test", client_software_version="1")
DELAY_MS = 100
RECEIVE_BYTES = 1 << 20


@pytest.fixture
def world() -> SaslWorld:
    return SaslWorld()


@pytest.fixture
def client(world: SaslWorld) -> SaslClient:
    return world.connect()


def reason_of(world: SaslWorld) -> CloseReason:
    ((_, reason),) = world.server.closed
    return reason


# What is accepted in which state.


@pytest.mark.parametrize("version", [0, 1, 2])
def test_plain_logs_in_and_requests_are_served(world: SaslWorld, client: SaslClient, version: int) -> None:
    assert client.handshake().mechanisms == ["PLAIN", "SCRAM-SHA-256"]

    answer = client.authenticate(version=version)

    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, None, b"")
    assert client.ask()
    assert world.asked == [ALICE]


def test_scram_logs_in(world: SaslWorld, client: SaslClient) -> None:
    assert client.scram().error_code == 0
    assert client.ask()
    assert world.asked == [ALICE]


def test_versions_before_the_login_are_all_that_there_are(client: SaslClient) -> None:
    answer = client.call(NAMED, ApiVersionsResponse, 3)

    assert [row.api_key for row in answer.api_keys] == list(APIS)
    assert client.login().error_code == 0
    assert client.connection.client is not None
    assert client.connection.client.software_name == "test"


def test_unknown_api_versions_may_be_followed_by_another(client: SaslClient) -> None:
    client.send(struct.pack(">ihhih", 10, 18, 99, 7, -1))
    assert client.answer(ApiVersionsResponse, 0).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert client.call(NAMED, ApiVersionsResponse, 3).error_code == 0
    assert client.login().error_code == 0


def test_invalid_software_name_may_be_followed_by_another(client: SaslClient) -> None:
    invalid = ApiVersionsRequest(client_software_name="-", client_software_version="1")
    assert client.call(invalid, ApiVersionsResponse, 3).error_code == ErrorCode.INVALID_REQUEST
    assert client.call(NAMED, ApiVersionsResponse, 3).error_code == 0
    assert client.login().error_code == 0


def test_second_api_versions_is_closed_without_an_answer(world: SaslWorld, client: SaslClient) -> None:
    client.send(VERSIONS)
    assert client.receive()

    client.send(VERSIONS)

    assert (client.receive(), client.is_closed) == (b"", True)
    assert reason_of(world) is CloseReason.NOT_AUTHENTICATED


@pytest.mark.parametrize("before", [b"", VERSIONS])
def test_other_request_before_the_handshake_is_closed(world: SaslWorld, client: SaslClient, before: bytes) -> None:
    client.send(before)
    answers = len(client.transport.frames)

    client.send(ASK_FRAME[:8])

    assert (len(client.transport.frames), client.is_closed) == (answers, True), "its body need not come"
    assert world.asked == []


def test_token_before_the_handshake_is_closed(client: SaslClient) -> None:
    client.send(token_frame())
    assert (client.receive(), client.is_closed) == (b"", True)


def test_other_mechanism_is_refused_after_the_delay(world: SaslWorld, client: SaslClient) -> None:
    assert client.handshake("GSSAPI") is None
    world.pass_ms(DELAY_MS - 1)
    assert (client.receive(), client.is_closed) == (b"", False)

    world.pass_ms(1)

    assert struct.unpack_from(">iih", client.receive())[2] == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert client.is_closed
    assert world.server.sasl["SASL"].ended == {("login", "_other", "failure"): 1}


def test_other_request_among_the_tokens_gets_its_own_error(world: SaslWorld, client: SaslClient) -> None:
    client.handshake()
    client.send(ASK_FRAME[:12])
    assert client.receive() == b""

    world.pass_ms(DELAY_MS)

    answer = client.answer(DescribeClusterResponse, ASK_VERSION)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.is_closed
    assert world.asked == []


@pytest.mark.parametrize("version", [3, 99])
def test_unsupported_version_of_a_token_is_closed(client: SaslClient, version: int) -> None:
    client.handshake()
    client.send(struct.pack(">ihhih", 10, 36, version, 7, -1))
    assert (client.receive(), client.is_closed) == (b"", True)


def test_unknown_api_versions_among_tokens_is_an_error(world: SaslWorld, client: SaslClient) -> None:
    client.handshake()
    client.send(struct.pack(">ihhih", 10, 18, 99, 7, -1))
    world.pass_ms(DELAY_MS)
    assert client.answer(ApiVersionsResponse, 0).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.is_closed


@pytest.mark.parametrize("listener", ["SASL", PLAINTEXT])
def test_login_where_none_is_due_changes_nothing(world: SaslWorld, listener: str) -> None:
    client = world.connect(listener)
    if listener != PLAINTEXT:
        client.login()

    handshake, token = client.handshake(), client.authenticate()

    assert (handshake.error_code, handshake.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert token.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.ask()
    assert world.asked == [ANONYMOUS if listener == PLAINTEXT else ALICE]


# Bare tokens.


def test_tokens_after_a_handshake_of_version_0_are_bare(world: SaslWorld, client: SaslClient) -> None:
    assert client.handshake(version=0).error_code == 0

    client.send(raw_frame())

    assert client.receive() == bytes(4)
    assert client.ask()
    assert world.asked == [ALICE]


def test_bare_token_may_be_empty_and_failure_has_no_answer(world: SaslWorld, client: SaslClient) -> None:
    client.handshake(version=0)
    client.send(raw_frame(b""))
    assert client.transport.reading_paused, "a token of no bytes is one"
    world.pass_ms(DELAY_MS)
    assert (client.receive(), client.is_closed) == (b"", True)
    assert reason_of(world) is CloseReason.AUTHENTICATION_FAILED


# Failure.


@pytest.mark.parametrize("user", ["alice", "unknown"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM"])
def test_failures_look_alike_and_come_late(world: SaslWorld, client: SaslClient, user: str, mechanism: str) -> None:
    if mechanism == "PLAIN":
        assert client.login(b"\0" + user.encode() + b"\0wrong") is None
        sentence = "Authentication failed: Invalid username or password"
    else:
        assert client.scram(user, "wrong") is None
        sentence = (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
        )
    before = client.receive()
    world.pass_ms(DELAY_MS)
    answer = client.answer(SaslAuthenticateResponse, 1)

    assert before == b""
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, sentence)
    assert answer.auth_bytes == b""
    assert client.is_closed
    assert client.connection.principal == ANONYMOUS


def test_st6_nothing_is_read_while_a_failure_waits(world: SaslWorld, client: SaslClient) -> None:
    """Neither what comes later nor what lies behind it already."""
    client.handshake()
    client.send(token_frame(WRONG) + token_frame(GOOD) + ASK_FRAME)
    assert client.transport.reading_paused
    assert client.connection._kept is None

    world.pass_ms(DELAY_MS)

    assert len(client.transport.frames) == 2, "the handshake's answer and the failure"
    assert world.asked == []
    assert world.server.sasl["SASL"].ended == {("login", "PLAIN", "failure"): 1}


def test_without_a_delay_the_failure_comes_at_once() -> None:
    world = SaslWorld(delay_ms=0)
    client = world.connect()
    assert client.login(WRONG).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed


def test_client_that_leaves_during_the_delay_is_forgotten(world: SaslWorld, client: SaslClient) -> None:
    client.login(WRONG)
    client.connection.connection_lost(None)
    world.pass_ms(10 * DELAY_MS)
    assert not world.server.connections


def test_failure_is_logged_with_the_claimed_user_and_no_token(world: SaslWorld, client: SaslClient) -> None:
    client.login(b"\0mallory\0pa55word")
    ((event, fields),) = world.log.events
    assert event == "authentication failed"
    assert fields["user"] == "mallory"
    assert (fields["listener"], fields["mechanism"]) == ("SASL", "PLAIN")
    assert "pa55word" not in repr(world.log.events)


# Limits.


@pytest.mark.parametrize("size", [-1, 9, 64 * 1024 + 1, 100 << 20])
@pytest.mark.parametrize("before", [b"", HANDSHAKE])
def test_size_out_of_bounds_ends_the_connection(world: SaslWorld, client: SaslClient, size: int, before: bytes) -> None:
    client.send(before)
    client.send(struct.pack(">i", size))
    world.pass_ms(DELAY_MS)
    assert client.is_closed


def test_st4_the_limit_of_requests_changes_with_the_login(world: SaslWorld, client: SaslClient) -> None:
    client.login()

    client.send(struct.pack(">i", 2 << 20) + ASK_FRAME[4:] + bytes((2 << 20) - len(ASK_FRAME) + 4))

    assert world.asked == [ALICE], "bytes behind the last field are ignored"


def test_memory_before_the_login_follows_what_arrived(client: SaslClient) -> None:
    """I-27."""
    client.handshake()
    client.send(struct.pack(">ihhih", 60_000, 36, 1, 7, -1))
    assert client.connection.get_buffer(-1).nbytes <= 4096
    assert client.world.server.receive_buffers.lent == 0


@pytest.mark.parametrize("tags", [b"\x80\xda\xc4\x09", b"\x41", b"\xff\xff\xff\xff\x0f"])
def test_twenty_million_tags_before_the_login_take_no_memory(client: SaslClient, tags: bytes) -> None:
    """CVE-2026-111115: in the header, and in the body; 65 are too many, too."""
    # What is imported and made for the first token is not counted.
    client.handshake()
    client.send(token_frame(WRONG, 2))
    one_tag_each = b"".join(bytes((number, 0)) for number in range(1, 65)) * 400
    for start in (b"\0\x01c" + tags, b"\0\x01c\0" + b"\x02x" + tags):
        other = client.world.connect()
        other.handshake()
        body = struct.pack(">hhi", 36, 2, 7) + start + one_tag_each
        tracemalloc.start()
        other.send(struct.pack(">i", len(body)) + body)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        other.world.pass_ms(DELAY_MS)
        assert other.is_closed
        assert most < RECEIVE_BYTES + 4 * len(body), "the buffer of all connections, and what came, once or twice"


def test_a_login_that_takes_too_long_is_cut_off(world: SaslWorld, client: SaslClient) -> None:
    client.handshake()
    world.pass_ms(LOGIN_TIMEOUT_MS - 1)
    assert not client.is_closed
    world.pass_ms(1)
    assert client.is_closed
    assert reason_of(world) is CloseReason.NOT_AUTHENTICATED


def test_who_has_logged_in_is_not_cut_off(world: SaslWorld, client: SaslClient) -> None:
    client.login()
    world.pass_ms(2 * LOGIN_TIMEOUT_MS)
    assert client.ask()


def test_time_before_the_broker_serves_does_not_count(world: SaslWorld) -> None:
    world.server.runtime.is_serving = False
    client = world.connect()
    assert client.connection.holds == HELD_BY_START
    client.send(HANDSHAKE)
    world.pass_ms(LOGIN_TIMEOUT_MS + 1)
    world.server.begin_to_serve()
    world.end_event()

    assert client.receive()
    assert client.authenticate().error_code == 0


def test_requests_before_the_login_are_counted(world: SaslWorld, client: SaslClient) -> None:
    again = struct.pack(">ihhih", 10, 18, 99, 7, -1)
    client.send(again * 1000)
    assert len(client.transport.frames) == REQUESTS_MAX
    assert client.is_closed
    assert reason_of(world) is CloseReason.NOT_AUTHENTICATED


# What lies behind the last token.


@pytest.mark.parametrize("handshake", [HANDSHAKE, RAW_HANDSHAKE])
def test_st5_requests_behind_the_token_are_served_after_it(handshake: bytes) -> None:
    """At every split of the stream."""
    token = raw_frame() if handshake is RAW_HANDSHAKE else token_frame()
    stream = VERSIONS + handshake + token + ASK_FRAME * 2
    for cut in range(1, len(stream)):
        world = SaslWorld()
        client = world.connect()
        client.send(stream[:cut])
        client.send(stream[cut:])
        assert world.asked == [ALICE, ALICE], cut
        assert len(client.transport.frames) == 5, cut


def test_st5_byte_by_byte(world: SaslWorld, client: SaslClient) -> None:
    for byte in VERSIONS + RAW_HANDSHAKE + raw_frame() + ASK_FRAME:
        client.send(bytes([byte]))
    assert world.asked == [ALICE]


def test_st5_nothing_behind_a_wrong_token_is_served(world: SaslWorld) -> None:
    stream = HANDSHAKE + token_frame(WRONG) + ASK_FRAME
    for cut in range(1, len(stream)):
        client = world.connect()
        client.send(stream[:cut])
        client.send(stream[cut:])
    world.pass_ms(DELAY_MS)
    assert world.asked == []
    assert not world.server.connections


@pytest.mark.parametrize("before", [b"", HANDSHAKE, VERSIONS + HANDSHAKE])
def test_st5_nothing_before_the_token_is_served(world: SaslWorld, client: SaslClient, before: bytes) -> None:
    client.send(before + ASK_FRAME + token_frame())
    world.pass_ms(DELAY_MS)
    assert world.asked == []
    assert client.is_closed


def test_st3_logins_side_by_side_do_not_mix(world: SaslWorld) -> None:
    one, two = world.connect(), world.connect()
    one.handshake()
    two.handshake()
    answers = [one.authenticate(GOOD), two.authenticate(b"\0bob\0builder")]
    assert [None if each is None else each.error_code for each in answers] == [0, 0]
    assert one.ask()
    assert two.ask()
    assert world.asked == [ALICE, BOB]


def test_st2_the_principal_is_not_the_authorization_id(world: SaslWorld, client: SaslClient) -> None:
    assert client.login(b"bob\0alice\0wonderland") is None
    world.pass_ms(DELAY_MS)
    assert client.is_closed
    assert client.connection.principal == ANONYMOUS

"""The client's side of a login: against the server's side, and against servers that break the rules."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.authentication import AuthenticationError
from ottla.security.client import CLIENT_MECHANISMS, LoginCredentials, Secret, client_mechanism
from ottla.security.client_login import ClientLogin, renewal_ms
from ottla.security.exchange import SaslExchange
from tests.security.servers import SaslUser, exchange_of

NONCE = "a" * 32
ALICE = SaslUser("alice", "her password")


def login(mechanism: str = "PLAIN", user: SaslUser = ALICE) -> ClientLogin:
    return ClientLogin(LoginCredentials(mechanism, user.name, Secret(user.password)), NONCE)


def through(client: ClientLogin, server: SaslExchange) -> None:
    request: SaslHandshakeRequest | SaslAuthenticateRequest | None = client.begin()
    while request is not None:
        request = client.respond(answer_of(server, request))


def answer_of(server: SaslExchange, request: Any) -> SaslHandshakeResponse | SaslAuthenticateResponse:
    if isinstance(request, SaslHandshakeRequest):
        error, mechanisms = server.handshake(request.mechanism, 1, 0)
        return SaslHandshakeResponse(error_code=error, mechanisms=list(mechanisms))
    reply = server.respond(bytes(request.auth_bytes), 0, 0)
    return SaslAuthenticateResponse(auth_bytes=reply.token, session_lifetime_ms=reply.lifetime_ms)


def refusal(client: ClientLogin, *answers: Any) -> str:
    client.begin()
    *before, last = answers
    for answer in before:
        client.respond(answer)
    with pytest.raises(AuthenticationError) as raised:
        client.respond(last)
    return str(raised.value)


@pytest.mark.parametrize("mechanism", CLIENT_MECHANISMS)
def test_client_and_server_agree_on_who_it_is(mechanism: str) -> None:
    client, server = login(mechanism), exchange_of(ALICE, lifetime_ms=7000)

    through(client, server)

    assert client.lifetime_ms == 7000


@pytest.mark.parametrize("mechanism", CLIENT_MECHANISMS)
def test_a_wrong_password_is_refused_by_the_server(mechanism: str) -> None:
    with pytest.raises(AuthenticationError):
        through(login(mechanism, SaslUser("alice", "another password")), exchange_of(ALICE))


TEXTS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=20)


@given(TEXTS.filter(lambda name: name != "ANONYMOUS"), TEXTS, st.sampled_from(CLIENT_MECHANISMS))
def test_any_name_and_password_can_log_in(name: str, password: str, mechanism: str) -> None:
    user = SaslUser(name, password)

    through(login(mechanism, user), exchange_of(user))


@pytest.mark.parametrize(
    "user", [SaslUser("", "p"), SaslUser("u", ""), SaslUser("u\0v", "p"), SaslUser("u", "p\0alice")]
)
@pytest.mark.parametrize("mechanism", CLIENT_MECHANISMS)
def test_what_no_token_can_carry_is_refused_before(mechanism: str, user: SaslUser) -> None:
    with pytest.raises(AuthenticationError, match="is empty, or has a NUL"):
        login(mechanism, user)


def test_other_mechanisms_are_refused_by_name() -> None:
    with pytest.raises(AuthenticationError, match="the SASL mechanism GSSAPI is not supported, but PLAIN, SCRAM-SHA"):
        login("GSSAPI")


@st.composite
def server_firsts(draw: st.DrawFn) -> bytes:
    """Of SCRAM, right or nearly so."""
    nonce = NONCE + draw(st.text("ab,é", max_size=3))
    salt = draw(st.text("QA=", min_size=1, max_size=8))
    return f"r={nonce},s={salt},i={draw(st.integers(-1, 5000))}{draw(st.sampled_from(['', ',x=y', ',']))}".encode()


OK = SaslHandshakeResponse(mechanisms=["PLAIN"])


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        (
            [SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-256", "SCRAM-SHA-512"])],
            "the listener does not offer the SASL mechanism PLAIN, but SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        ([SaslHandshakeResponse(error_code=33)], "does not offer the SASL mechanism PLAIN, but none at all"),
        ([SaslHandshakeResponse(error_code=34)], "the listener has no SASL, and wants no login"),
        ([SaslHandshakeResponse(error_code=35)], "the SASL handshake was answered with UNSUPPORTED_VERSION"),
        ([SaslHandshakeResponse(error_code=9999)], "the SASL handshake was answered with error 9999"),
        (
            [OK, SaslAuthenticateResponse(error_code=58, error_message="Invalid username or password.")],
            "Invalid username or password",
        ),
        ([OK, SaslAuthenticateResponse(error_code=58)], "the user or the password is wrong"),
        ([OK, SaslAuthenticateResponse(error_code=34, error_message="not now")], "ILLEGAL_SASL_STATE: not now"),
        ([OK, SaslAuthenticateResponse(error_code=-1)], "UNKNOWN_SERVER_ERROR"),
        ([OK, SaslAuthenticateResponse(auth_bytes=b"more?")], "the server has answered PLAIN with a token"),
    ],
)
def test_each_refusal_of_a_server_has_its_sentence(answers: list[Any], sentence: str) -> None:
    assert sentence in refusal(login(), *answers)


def test_what_a_server_says_is_shown_without_control_signs() -> None:
    message = "bad\x1b[2J\n" + 1000 * "x"

    shown = refusal(login(), OK, SaslAuthenticateResponse(error_code=58, error_message=message))

    assert shown.startswith("bad?[2J?xxx")
    assert len(shown) == 256


@pytest.mark.parametrize(
    "tamper",
    [
        lambda token: b"",
        lambda token: b"v=" + 44 * b"A",
        lambda token: token + b"=",
        lambda token: token.replace(b"v=", b"e="),
    ],
    ids=["nothing", "another's", "longer", "an error"],
)
def test_a_server_that_does_not_know_the_user_is_found(tamper: Callable[[bytes], bytes]) -> None:
    """It says that the login has succeeded, as a false server would."""
    client, server = login("SCRAM-SHA-256"), exchange_of(ALICE)
    first = client.respond(answer_of(server, client.begin()))
    final = client.respond(answer_of(server, first))
    proof = answer_of(server, final)
    assert isinstance(proof, SaslAuthenticateResponse)
    proof.auth_bytes = tamper(bytes(proof.auth_bytes))

    with pytest.raises(AuthenticationError, match="the server has not proved that it knows the user"):
        client.respond(proof)


@settings(max_examples=300)
@given(st.sampled_from(CLIENT_MECHANISMS), st.lists(st.binary(max_size=60) | server_firsts(), max_size=3))
def test_no_token_of_a_server_does_more_than_fail(mechanism: str, tokens: list[bytes]) -> None:
    """No token but the empty one at PLAIN ends a login with success."""
    client = login(mechanism)
    client.respond(OK)
    for token in tokens:
        try:
            request = client.respond(SaslAuthenticateResponse(auth_bytes=token))
        except AuthenticationError:
            return
        assert request is not None or (mechanism, token) == ("PLAIN", b"")
        if request is None:
            return


def test_server_that_accepts_before_the_proof_is_refused() -> None:
    assert "malformed" in refusal(login("SCRAM-SHA-512"), OK, SaslAuthenticateResponse())


@pytest.mark.parametrize(("draw", "wait_ms"), [(0.0, 85_000), (0.5, 90_000), (1.0, 95_000)])
def test_a_session_is_renewed_before_its_end(draw: float, wait_ms: int) -> None:
    assert abs((renewal_ms(100_000, draw) or 0) - wait_ms) <= 1


def test_a_session_without_an_end_is_not_renewed() -> None:
    client = login()
    client.respond(OK)

    assert client.respond(SaslAuthenticateResponse(session_lifetime_ms=-5)) is None
    assert client.lifetime_ms == 0
    assert renewal_ms(0, 0.5) is None


def test_no_representation_shows_a_password() -> None:
    credentials = LoginCredentials("PLAIN", "alice", Secret("her password"))

    assert "her password" not in f"{credentials}{credentials!r}{client_mechanism(credentials, NONCE)!r}"

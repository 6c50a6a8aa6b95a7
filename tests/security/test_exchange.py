"""Authentication by SASL: states, sessions and authentication again."""

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.security.authentication import USER, Authenticated, AuthenticationError, Challenge, Principal
from ottla.security.exchange import SaslExchange, SaslState, sentence_for_client

ALICE, BOB = Principal(USER, "alice"), Principal(USER, "bob")


class Says:
    """A mechanism that answers with what the test says."""

    def __init__(self, *answers: Challenge | Authenticated | AuthenticationError) -> None:
        self._answers = iter(answers)

    def respond(self, token: bytes, now_wall_ms: int) -> Challenge | Authenticated:
        answer = next(self._answers)
        if isinstance(answer, AuthenticationError):
            raise answer
        return answer


class Connection:
    def __init__(self, reauthentication_ms: int = 0) -> None:
        self.next = Says()
        self.exchange = SaslExchange(
            {"ONE": lambda: self.next, "TWO": lambda: self.next}, lambda _: reauthentication_ms
        )

    def login(self, known: Authenticated, *, mechanism: str = "ONE", now_ms: int = 0, version: int = 1) -> int:
        """The lifetime of the session."""
        self.next = Says(known)
        assert self.exchange.handshake(mechanism, version, now_ms).error is ErrorCode.NONE
        return self.exchange.respond(b"", now_ms, now_ms).lifetime_ms


def test_tokens_go_to_and_fro_until_the_client_is_known() -> None:
    at = Connection()
    at.next = Says(Challenge(b"who?"), Authenticated(ALICE, b"yes"))

    assert at.exchange.handshake("ONE", 1, 0) == (ErrorCode.NONE, ("ONE", "TWO"))
    assert at.exchange.state is SaslState.TOKENS
    first, second = (at.exchange.respond(b"", 0, 0) for _ in range(2))

    assert (first.token, first.session) == (b"who?", None)
    assert (second.token, second.session) == (b"yes", (ALICE, "ONE", None))
    assert at.exchange.state is SaslState.COMPLETE


def test_versions_may_be_asked_for_first() -> None:
    at = Connection()
    at.exchange.versions_answered()
    assert at.exchange.state is SaslState.HANDSHAKE
    assert at.login(Authenticated(ALICE)) == 0


def test_old_clients_send_bare_tokens() -> None:
    at = Connection()
    at.exchange.handshake("ONE", 0, 0)
    assert at.exchange.state is SaslState.RAW_TOKENS


def test_another_mechanism_is_refused_with_those_there_are() -> None:
    at = Connection()
    assert at.exchange.handshake("GSSAPI", 1, 0) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ("ONE", "TWO"))
    assert at.exchange.state is SaslState.FAILED


def test_a_failure_ends_the_exchange() -> None:
    at = Connection()
    at.next = Says(AuthenticationError("wrong password"))
    at.exchange.handshake("ONE", 1, 0)

    with pytest.raises(AuthenticationError):
        at.exchange.respond(b"", 0, 0)
    assert at.exchange.state is SaslState.FAILED


@pytest.mark.parametrize(
    ("of_listener", "of_token", "lifetime_ms"),
    [(0, None, 0), (5_000, None, 5_000), (0, 7_000, 6_000), (5_000, 7_000, 5_000), (9_000, 7_000, 6_000), (0, 500, 0)],
)
def test_the_shorter_lifetime_counts(of_listener: int, of_token: int | None, lifetime_ms: int) -> None:
    at = Connection(of_listener)
    assert at.login(Authenticated(ALICE, expires_wall_ms=of_token), now_ms=1_000) == lifetime_ms


def test_a_session_without_an_end_is_not_renewed() -> None:
    at = Connection()
    at.login(Authenticated(ALICE))

    assert at.exchange.handshake("ONE", 1, 60_000) == (ErrorCode.ILLEGAL_SASL_STATE, ())
    assert at.exchange.state is SaslState.COMPLETE


def test_a_session_is_renewed_but_not_at_once() -> None:
    at = Connection(5_000)
    at.login(Authenticated(ALICE))

    assert at.exchange.handshake("ONE", 1, 999).error is ErrorCode.ILLEGAL_SASL_STATE
    assert at.login(Authenticated(ALICE), now_ms=1_000) == 5_000


def test_a_session_is_renewed_by_who_has_it() -> None:
    at = Connection(5_000)
    at.login(Authenticated(ALICE))
    with pytest.raises(AuthenticationError, match="change principals"):
        at.login(Authenticated(BOB), now_ms=2_000)
    assert at.exchange.state is SaslState.FAILED


def test_a_session_is_renewed_with_its_mechanism() -> None:
    """The handshake is answered with success; the token that follows fails."""
    at = Connection(5_000)
    at.login(Authenticated(ALICE))
    with pytest.raises(AuthenticationError, match="does not match"):
        at.login(Authenticated(ALICE), mechanism="TWO", now_ms=2_000)


def test_clients_hear_no_more_than_they_may() -> None:
    assert "no such user" not in sentence_for_client(AuthenticationError("there is no such user"), "PLAIN")
    assert sentence_for_client(AuthenticationError("a", for_client="b"), "PLAIN") == "b"

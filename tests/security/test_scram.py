"""SCRAM by the vectors of the RFCs, and against messages that break its rules (RFC 5802, RFC 7677)."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.authentication import USER, Authenticated, AuthenticationError, Challenge, Principal
from ottla.security.scram import ScramClient, ScramMechanism
from ottla.security.scram_credential import ScramCredential, ScramHash, credential_of, decoy, salted_password

SECRET = b"the secret of a cluster"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
VECTORS = {
    ScramHash.SHA_256: (
        "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=",
        "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=",
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
    ScramHash.SHA_512: (
        "6AAub3065EYRmyFpM2RNwqK+eGnrkYuEWbXn19LsEmBqzu8QaCXNc1FwpnX9NhH2hK/60dzj9DoO5DvVkOHbvg==",
        "jZHbYjC1aHh0/hKbxyBuGFjDrgjgKTT1esA7awWiKcRZ0o/0b1yWEebBeSVkkCFewf91nLDfKF24mvD5nmE6rA==",
        "gMGXRcevScNtxZ6/8lQYpGtnsNAc3mGcmNomv+xnoOMw+3R2xNJdMNnzMlTN8PPC6wdp6dybEmDYXYTxwnYPJQ==",
        "ZQnYEgWQMFmmsM8aQMF0nDDCy/AgCzkwk8CmMZYcMg0vSVlKDanekLtifDSeVGT4+5ZxXnJq199RVG2rR7N7Zw==",
    ),
}


def credential(scram: ScramHash = ScramHash.SHA_256, password: bytes = b"pencil") -> ScramCredential:
    return credential_of(scram, SALT, salted_password(scram, password, SALT, 4096), 4096)


def server(scram: ScramHash = ScramHash.SHA_256, user: str = "user", nonce: str = SERVER_NONCE) -> ScramMechanism:
    return ScramMechanism(scram, {user: credential(scram)}.get, nonce, SECRET)


def client(user: str = "user", password: str = "pencil", scram: ScramHash = ScramHash.SHA_256) -> ScramClient:
    return ScramClient(scram, user, password, CLIENT_NONCE)


def exchange(by: ScramClient, at: ScramMechanism) -> Authenticated:
    challenge = at.respond(by.first(), 0)
    assert isinstance(challenge, Challenge)
    known = at.respond(by.final(challenge.token), 0)
    assert isinstance(known, Authenticated)
    by.check(known.token)
    return known


@pytest.mark.parametrize("scram", ScramHash)
def test_an_exchange_is_that_of_the_rfc(scram: ScramHash) -> None:
    stored_key, server_key, proof, signature = VECTORS[scram]
    kept = credential(scram)
    at = server(scram)

    challenge = at.respond(f"n,,n=user,r={CLIENT_NONCE}".encode(), 0)
    known = at.respond(f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p={proof}".encode(), 0)

    assert (kept.stored_key, kept.server_key) == (base64.b64decode(stored_key), base64.b64decode(server_key))
    first = f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert challenge == Challenge(first.encode())
    assert known == Authenticated(Principal(USER, "user"), f"v={signature}".encode())


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1), st.sampled_from(ScramHash))
def test_any_name_logs_in(user: str, scram: ScramHash) -> None:
    assert exchange(client(user, scram=scram), server(scram, user)).principal.name == user


def test_a_wrong_password_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="wrong password") as refused:
        exchange(client(password="pencils"), server())
    assert (refused.value.for_client, refused.value.user) == (None, "user")


def test_an_unknown_user_looks_like_a_known_one() -> None:
    """As many messages of the same form, and the same salt each time."""
    first, second = (server().respond(client("carol").first(), 0).token for _ in range(2))
    assert first == second
    assert first.startswith(f"r={CLIENT_NONCE}{SERVER_NONCE},s=".encode())
    assert first.endswith(b",i=4096")
    with pytest.raises(AuthenticationError, match="no such user") as refused:
        exchange(client("carol"), server())
    assert refused.value.for_client is None


def test_an_unknown_user_takes_as_many_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC30: what hashes take is nearly all that a login takes, and is the same for every name."""
    counted: list[str] = []
    for name in ("hmac", "digest"):
        whole = getattr(ScramHash, name)
        monkeypatch.setattr(ScramHash, name, lambda *each, name=name, whole=whole: counted.append(name) or whole(*each))
    found = {}
    for user in ("user", "carol"):
        at, from_ = server(), client(user, "wrong")
        counted.clear()
        challenge = at.respond(from_.first(), 0)
        first, final = [*counted], from_.final(challenge.token)
        counted.clear()
        with pytest.raises(AuthenticationError):
            at.respond(final, 0)
        found[user] = first, [*counted]

    assert found["user"] == found["carol"]
    assert found["user"][0].count("hmac") == 3


def test_decoys_differ_by_user_mechanism_and_cluster() -> None:
    names = [(scram, secret, user) for scram in ScramHash for secret in (b"1", b"2") for user in ("a", "b")]
    assert len({decoy(*each).salt for each in names}) == len(names)


@pytest.mark.parametrize(
    "nonce", ["", CLIENT_NONCE, SERVER_NONCE, f"x{SERVER_NONCE}", f"{CLIENT_NONCE}{SERVER_NONCE}x", f"x{CLIENT_NONCE}"]
)
def test_nonce_of_another_exchange_is_refused(nonce: str) -> None:
    """ST-1, CVE-2024-56128"""
    at = server()
    challenge = at.respond(client().first(), 0)
    final = client().final(challenge.token).decode().replace(f"{CLIENT_NONCE}{SERVER_NONCE}", nonce)

    with pytest.raises(AuthenticationError):
        at.respond(final.encode(), 0)


def test_a_proof_does_not_make_another_nonce_right() -> None:
    """ST-1: of one who knows the password, so that nothing else is wrong."""
    scram, at = ScramHash.SHA_256, server()
    first = client().first().decode()
    challenge = at.respond(first.encode(), 0).token.decode()
    without_proof = f"c=biws,r=another{SERVER_NONCE}"
    message = f"{first.removeprefix('n,,')},{challenge},{without_proof}".encode()
    key = scram.hmac(salted_password(scram, b"pencil", SALT, 4096), b"Client Key")
    signature = scram.hmac(scram.digest(key), message)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))

    with pytest.raises(AuthenticationError, match="nonce"):
        at.respond(f"{without_proof},p={base64.b64encode(proof).decode()}".encode(), 0)


def test_the_principal_is_not_the_authorization_id() -> None:
    """ST-2, CVE-2017-12610"""
    with pytest.raises(AuthenticationError) as refused:
        server().respond(f"n,a=root,n=user,r={CLIENT_NONCE}".encode(), 0)
    assert refused.value.for_client is not None
    assert isinstance(server().respond(f"n,a=user,n=user,r={CLIENT_NONCE}".encode(), 0), Challenge)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,m=x,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=a,bc",
        b"n,,n=user,r=abc,",
        b"n,,n=\xff,r=abc",
        b"n,,n=user,r=abc\0",
        b"n,,n=user,r=" + b"a" * 20_000,
    ],
)
def test_malformed_first_messages_are_refused(first: bytes) -> None:
    with pytest.raises(AuthenticationError):
        server().respond(first, 0)


@pytest.mark.parametrize(
    ("old", "new"),
    [("c=biws", "c=eSws"), ("c=biws", "c=biw"), ("p=", "p=AAAA"), ("p=", "q="), (",p=", ",p"), ("=", "-")],
)
def test_malformed_final_messages_are_refused(old: str, new: str) -> None:
    at, by = server(), client()
    final = by.final(at.respond(by.first(), 0).token).decode()

    with pytest.raises(AuthenticationError):
        at.respond(final.replace(old, new, 1).encode(), 0)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_are_refused_and_raise_nothing_else(first: bytes, final: bytes) -> None:
    with pytest.raises(AuthenticationError):
        server().respond(first, 0)
    at = server()
    at.respond(client().first(), 0)
    with pytest.raises(AuthenticationError):
        at.respond(final, 0)


def test_nothing_comes_behind_the_end() -> None:
    at, by = server(), client()
    exchange(by, at)

    with pytest.raises(AuthenticationError):
        at.respond(by.first(), 0)


def test_two_interleaved_exchanges_do_not_mix() -> None:
    """ST-3"""
    users = {"one": credential(password=b"first"), "two": credential(password=b"second")}
    here, there = (ScramMechanism(ScramHash.SHA_256, users.get, nonce, SECRET) for nonce in ("s1", "s2"))
    one, two = client("one", "first"), client("two", "second")
    for_one, for_two = here.respond(one.first(), 0), there.respond(two.first(), 0)

    assert isinstance(here.respond(one.final(for_one.token), 0), Authenticated)
    with pytest.raises(AuthenticationError):
        there.respond(one.final(for_one.token), 0)
    assert for_two.token != for_one.token


@pytest.mark.parametrize(
    "answer", [b"", b"r=abc,s=AAAA,i=4096", b"r=%b,s=AAAA,i=4096" % CLIENT_NONCE.encode(), b"e=other-error"]
)
def test_a_client_does_not_follow_a_server_that_breaks_rules(answer: bytes) -> None:
    with pytest.raises(AuthenticationError):
        client().final(answer)


@pytest.mark.parametrize("iterations", [1, 4095, 100_000_000])
def test_a_client_bounds_the_iterations(iterations: int) -> None:
    with pytest.raises(AuthenticationError, match="iterations"):
        client().final(f"r={CLIENT_NONCE}x,s=AAAA,i={iterations}".encode())


@pytest.mark.parametrize("final", [b"", b"v=", b"v=AAAA", b"e=invalid-proof"])
def test_a_client_asks_for_the_servers_proof(final: bytes) -> None:
    by = client()
    by.final(server().respond(by.first(), 0).token)

    with pytest.raises(AuthenticationError):
        by.check(final)


def test_credentials_do_not_show_themselves() -> None:
    assert "hidden" in repr(credential())
    assert repr(SALT) not in repr(credential())

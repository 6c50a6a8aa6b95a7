"""Secrets are left out of captures, wherever reads and writes cut them, and nothing else is."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.client import RequestFramer
from ottla.protocol.codec import frame_encoder
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.testing.wire_capture.blanking import FrameFilter, RequestFilter, ResponseFilter

SECRET = b"\0alice\0open sesame"


def request(message: Any, version: int, correlation_id: int = 1) -> bytes:
    return RequestFramer(type(message), version, "tester").build(message, correlation_id)


def answer(message: Any, version: int, correlation_id: int = 1) -> bytes:
    return frame_encoder(type(message), version)(message, correlation_id)


def token(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def filtered(one: FrameFilter, *pieces: bytes) -> bytes:
    return b"".join(map(one.add, pieces)) + one.rest()


PLAIN_REQUESTS = request(MetadataRequest(topics=None), 12) + request(FetchRequest(), 12, 2)
LOGIN = request(SaslHandshakeRequest(mechanism="PLAIN"), 1) + request(SaslAuthenticateRequest(auth_bytes=SECRET), 2, 5)
ALTERATIONS = request(
    AlterUserScramCredentialsRequest(
        upsertions=[ScramCredentialUpsertion(name="bob", mechanism=1, salt=b"the salt", salted_password=b"hashed")]
    ),
    0,
) + request(
    IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=4,
                resource_name="0",
                configs=[
                    AlterableConfig(name="ssl.keystore.password", config_operation=0, value="swordfish"),
                    AlterableConfig(name="num.partitions", config_operation=0, value="3"),
                ],
            )
        ]
    ),
    1,
)


def test_requests_without_secrets_pass_as_they_are() -> None:
    assert filtered(RequestFilter(), PLAIN_REQUESTS) == PLAIN_REQUESTS


def test_token_is_blanked_and_all_else_is_kept() -> None:
    sent = LOGIN + PLAIN_REQUESTS

    written = filtered(RequestFilter(), sent)

    assert written == sent.replace(SECRET, b"*" * len(SECRET))


def test_passwords_of_users_and_configs_are_blanked() -> None:
    written = filtered(RequestFilter(), ALTERATIONS)

    assert len(written) == len(ALTERATIONS)
    for secret in (b"the salt", b"hashed", b"swordfish"):
        assert secret in ALTERATIONS
        assert secret not in written
    assert b"num.partitions" in written
    assert written.count(b"*") == len(b"the salthashedswordfish")


@given(st.lists(st.integers(1, 400), max_size=30))
def test_pieces_make_no_difference(cuts: list[int]) -> None:
    sent = PLAIN_REQUESTS + LOGIN + ALTERATIONS + PLAIN_REQUESTS
    places = sorted({each for each in cuts if each < len(sent)})
    pieces = [sent[begin:end] for begin, end in zip([0, *places], [*places, len(sent)], strict=True)]

    assert filtered(RequestFilter(), *pieces) == filtered(RequestFilter(), sent)
    assert SECRET not in filtered(RequestFilter(), *pieces)


def test_answers_to_tokens_are_blanked_by_correlation_id() -> None:
    requests = RequestFilter()
    filtered(requests, LOGIN)
    proof = answer(SaslAuthenticateResponse(auth_bytes=b"v=proof", session_lifetime_ms=9), 2, 5)
    others = answer(MetadataResponse(cluster_id="c"), 12, 6)

    written = filtered(ResponseFilter(requests), answer(SaslHandshakeResponse(), 1, 1) + proof + others)

    assert written.endswith(others)
    assert written == (answer(SaslHandshakeResponse(), 1, 1) + proof + others).replace(b"v=proof", b"*" * 7)


@pytest.mark.parametrize(("mechanism", "count"), [("PLAIN", 1), ("SCRAM-SHA-256", 2)])
def test_tokens_without_headers_are_blanked(mechanism: str, count: int) -> None:
    """Behind a SaslHandshake of version 0."""
    handshake = request(SaslHandshakeRequest(mechanism=mechanism), 0)
    tokens = [token(b"secret %d" % at) for at in range(count)]
    replies = [token(b"reply %d" % at) for at in range(count)]
    requests = RequestFilter()

    written = filtered(requests, handshake, *tokens, PLAIN_REQUESTS)
    answered = answer(SaslHandshakeResponse(), 0)
    sent = filtered(ResponseFilter(requests), *replies, answered)

    assert written == handshake + token(b"********") * count + PLAIN_REQUESTS
    assert sent == token(b"*******") * count + answered


def test_secret_that_cannot_be_parsed_is_left_out_as_a_whole() -> None:
    frame = request(SaslAuthenticateRequest(auth_bytes=SECRET), 2)
    broken = frame[:-1] + b"\xff"
    unknown = frame[:6] + b"\0\x63" + frame[8:]

    for each in (broken, unknown):
        written = filtered(RequestFilter(), each)
        assert SECRET not in written
        assert (len(written), written[:12]) == (len(each), each[:12])


def test_secret_that_ends_with_the_connection_is_left_out() -> None:
    frame = request(SaslAuthenticateRequest(auth_bytes=SECRET), 2)

    written = filtered(RequestFilter(), PLAIN_REQUESTS, frame[:-3])

    assert written == PLAIN_REQUESTS + frame[:12] + b"*" * (len(frame) - 15)


@given(st.binary(max_size=200), st.integers(1, 50))
def test_bytes_that_are_no_frames_keep_their_number(data: bytes, cut: int) -> None:
    one = RequestFilter()

    assert len(filtered(one, data[:cut], data[cut:])) == len(data)


def test_client_of_another_protocol_passes() -> None:
    assert filtered(RequestFilter(), b"GET / HTTP/1.1\r\n", b"Host: x\r\n\r\n") == b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def test_long_secret_is_left_out_as_it_comes() -> None:
    long = request(SaslAuthenticateRequest(auth_bytes=b"x" * (3 << 20)), 2)

    written = filtered(RequestFilter(), PLAIN_REQUESTS + long[:100], long[100:5000], long[5000:] + LOGIN)

    assert written.startswith(PLAIN_REQUESTS + long[:12] + b"***")
    assert b"xx" not in written
    assert written.endswith(LOGIN.replace(SECRET, b"*" * len(SECRET)))
    assert len(written) == len(PLAIN_REQUESTS + long + LOGIN)

"""What a client sends first, until it is whole: whatever it is cut into, and what is none."""

import itertools
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.server.client_hello import HELLO_BYTES_MAX, ClientHello, HelloTooLong


def hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


HELLO = hello()


def record(content: bytes) -> bytes:
    return b"\x16\x03\x01" + len(content).to_bytes(2, "big") + content


def message(size: int) -> bytes:
    return b"\x01" + size.to_bytes(3, "big") + bytes(size)


def add_in_pieces(data: bytes, cuts: list[int]) -> list[bool]:
    taken, answers, start = ClientHello(), [], 0
    for cut in [*sorted({each for each in cuts if 0 < each < len(data)}), len(data)]:
        answers.append(taken.add(memoryview(data)[start:cut]))
        start = cut
    assert taken.received == data
    return answers


def test_cut_at_every_byte() -> None:
    for cut in range(1, len(HELLO)):
        assert add_in_pieces(HELLO, [cut]) == [False, True], cut
    assert add_in_pieces(HELLO, list(range(len(HELLO)))) == [False] * (len(HELLO) - 1) + [True]


@given(st.integers(0, 300), st.lists(st.integers(1, 304), max_size=20), st.lists(st.integers(1, 500), max_size=5))
def test_in_any_records(size: int, splits: list[int], cuts: list[int]) -> None:
    """A message may be spread over records, its head too."""
    content = message(size)
    edges = [0, *sorted({each for each in splits if each < len(content)}), len(content)]
    data = b"".join(record(content[start:end]) for start, end in itertools.pairwise(edges))
    answers = add_in_pieces(data, cuts)
    assert answers == [False] * (len(answers) - 1) + [True]


@pytest.mark.parametrize(
    "data",
    [b"G", b"\0\0\0\x20", b"\x16\x02", b"\x17\x03\x03", record(b"\x02\0\0\0"), record(b"\x01") + b"\x15", record(b"")],
    ids=["HTTP", "Kafka", "version", "data", "another message", "another record", "empty record"],
)
def test_openssl_gets_at_once_what_it_will_refuse(data: bytes) -> None:
    assert add_in_pieces(data, [])[-1]


@pytest.mark.parametrize(
    "data",
    [
        record(b"\x01" + (131_000).to_bytes(3, "big")),
        record(b"\x01" + (HELLO_BYTES_MAX + 1).to_bytes(3, "big")),
        b"\x16\x03\x01\xff\xff",
        record(b"\x01\0\x3f\xf0") + record(b"x") * 3000,
    ],
    ids=["a message announced", "a little longer", "a record announced", "many small records"],
)
def test_what_is_too_long_is_refused_by_what_it_announces(data: bytes) -> None:
    with pytest.raises(HelloTooLong, match="more than 16384 bytes"):
        add_in_pieces(data, list(range(0, len(data), 100)))

"""Hostile bytes for a listener with TLS and a login behind it: records cut, bytes flipped, cut out and repeated, in the
first message, in what ends the handshake, and in what comes after it.

Nothing may be served, no principal given, no error be unforeseen; and nothing may be held for those that are gone.
"""

import itertools
import random
import ssl

from ottla.broker.server.client_hello import HELLO_BYTES_MAX
from ottla.broker.server.receive_buffers import KEPT_WHILE_HELD
from ottla.broker.server.sasl_gate import LOGIN_TIMEOUT_MS
from ottla.security.authentication import ANONYMOUS
from tests.broker.sasl_world import ASK_FRAME, HANDSHAKE, SASL, VERSIONS, WRONG, token_frame
from tests.fuzz.login import RECEIVE_BYTES_MAX, hostile_stream, unforeseen_events
from tests.protocol.fuzz_decoders import damage
from tests.tls.test_client_hello import HELLO, message, record
from tests.tls.test_connection import TlsClient, TlsWorld

INPUTS_PER_WORLD = 200
PIECES = (HANDSHAKE, VERSIONS, ASK_FRAME, token_frame(WRONG))


def run(seed: int, inputs: int) -> int:
    """Gives how many handshakes were done. Raises AssertionError for a connection that got further."""
    rng = random.Random(seed)
    done = 0
    world = TlsWorld()
    for number in range(inputs):
        if number % INPUTS_PER_WORLD == 0:
            world = TlsWorld(receive_bytes=RECEIVE_BYTES_MAX)
        client = TlsClient(world, SASL)
        try:
            rng.choice(_KINDS)(client, rng)
            _check(client)
            done += client.layer._is_established
            world.pass_ms(LOGIN_TIMEOUT_MS)
        except Exception as error:
            raise AssertionError(f"seed {seed}, input {number}: {error!r}") from error
        assert client.socket.is_closed, f"seed {seed}, input {number}: open without a login"
        assert not world.asked, f"seed {seed}, input {number}: a request was served"
        assert world.handshakes.held_bytes == 0, f"seed {seed}, input {number}: memory is held for it"
        assert not (unforeseen := unforeseen_events(world)), f"seed {seed}, input {number}: {unforeseen}"
    return done


def _hello(client: TlsClient, rng: random.Random) -> None:
    """Of a client's first message: cut, damaged, spread over records, or with another length than it says."""
    content = HELLO[5:]
    match rng.randrange(5):
        case 0:
            data = HELLO[: rng.randrange(len(HELLO))]
        case 1:
            data = damage(HELLO, rng)
        case 2:
            edges = [0, *sorted(rng.sample(range(1, len(content)), rng.randrange(1, 6))), len(content)]
            data = b"".join(record(content[a:b]) for a, b in itertools.pairwise(edges))
            data = damage(data, rng) if rng.random() < 0.5 else data
        case 3:
            data = record(message(rng.randrange(2 * HELLO_BYTES_MAX))[: rng.randrange(1, 2 * HELLO_BYTES_MAX)])
        case _:
            data = rng.choice((b"\x16\x03\x01", b"\x16", b"\x16\x03", b"")) + rng.randbytes(rng.randrange(400))
    _send(client, data, rng)


def _end_of_the_handshake(client: TlsClient, rng: random.Random) -> None:
    try:
        client.tls.do_handshake()
    except ssl.SSLWantReadError:
        _send(client, client.outgoing.read(), rng)
    client.take()
    client.tls.do_handshake()
    finished = client.outgoing.read()
    if rng.random() < 0.3:
        _send(client, finished[: rng.randrange(len(finished))], rng)
    else:
        _send(client, damage(finished, rng), rng)


def _after_the_handshake(client: TlsClient, rng: random.Random) -> None:
    client.shake_hands()
    data = b"".join(client.sealed(rng.choice(PIECES)) for _ in range(rng.randrange(1, 4)))
    match rng.randrange(3):
        case 0:
            data = damage(data, rng)
        case 1:
            data = data[: rng.randrange(len(data))] + rng.randbytes(rng.randrange(100))
        case _:
            data += rng.choice((b"\x15\x03\x03\0\x02\x02\x28", ASK_FRAME, HELLO, b"\x17\x03\x03\xff\xff"))
    _send(client, data, rng)


def _login_over_tls(client: TlsClient, rng: random.Random) -> None:
    """What the other part sends to a connection without a login, in whole records."""
    client.shake_hands()
    stream = hostile_stream(rng)
    while stream:
        cut = rng.randrange(1, len(stream) + 1)
        _send(client, client.sealed(stream[:cut]), rng)
        stream = stream[cut:]


def _send(client: TlsClient, data: bytes, rng: random.Random) -> None:
    """In pieces, each a read event."""
    while data:
        cut = rng.randrange(1, len(data) + 1)
        client.send(data[:cut])
        client.world.end_event()
        data = data[cut:]
        _check(client)


def _check(client: TlsClient) -> None:
    assert client.connection.principal == ANONYMOUS, "it has logged in"
    kept, hello = client.connection._kept, client.layer._hello
    assert kept is None or len(kept.view) <= RECEIVE_BYTES_MAX + KEPT_WHILE_HELD, "it holds too much memory"
    assert hello is None or len(hello.received) <= 2 * HELLO_BYTES_MAX + 64, "its first message holds too much memory"


_KINDS = (_hello, _hello, _hello, _end_of_the_handshake, _after_the_handshake, _login_over_tls)

"""Hostile bytes for a connection that has not logged in: nothing but the login is ever parsed or served.

What is sent is made of frames that belong to a login, whole and damaged, and of noise, cut anywhere.
"""

import random

from ottla.broker.server.connection_interfaces import HELD_BY_LOGIN
from ottla.broker.server.receive_buffers import KEPT_WHILE_HELD
from ottla.broker.server.sasl_gate import LOGIN_TIMEOUT_MS
from ottla.security.authentication import ANONYMOUS
from tests.broker.sasl_world import (
    ASK_FRAME,
    HANDSHAKE,
    RAW_HANDSHAKE,
    VERSIONS,
    WRONG,
    SaslClient,
    SaslWorld,
    raw_frame,
    token_frame,
)
from tests.protocol.fuzz_decoders import damage

RECEIVE_BYTES_MAX = 64 * 1024
INPUTS_PER_WORLD = 500
# What the log may say. The world's clock stands still or leaps, so requests seem to be slow.
FORESEEN = ("connection closed", "authentication failed", "slow request")
# None of them has the right password: damage cannot make it right.
PIECES = (HANDSHAKE, RAW_HANDSHAKE, VERSIONS, ASK_FRAME, token_frame(WRONG), raw_frame(WRONG), token_frame(b"", 2))


def run(seed: int, inputs: int) -> int:
    """Gives how many connections the inputs have ended. Raises AssertionError for a connection that got further."""
    rng = random.Random(seed)
    world = SaslWorld(receive_bytes=RECEIVE_BYTES_MAX)
    ended = 0
    for number in range(inputs):
        if number % INPUTS_PER_WORLD == 0:
            world = SaslWorld(receive_bytes=RECEIVE_BYTES_MAX)
        client = world.connect()
        try:
            _attack(client, hostile_stream(rng), rng)
            ended += client.is_closed or bool(client.connection.holds & HELD_BY_LOGIN)
            world.pass_ms(LOGIN_TIMEOUT_MS)
        except Exception as error:
            raise AssertionError(f"seed {seed}, input {number}: {error!r}") from error
        assert client.is_closed, f"seed {seed}, input {number}: open without a login"
        assert not world.asked, f"seed {seed}, input {number}: a request was served"
        assert not (unforeseen := unforeseen_events(world)), f"seed {seed}, input {number}: {unforeseen}"
    return ended


def unforeseen_events(world: SaslWorld) -> list[str]:
    """What the log has that no hostile client should cause, an error of the broker above all."""
    return [event for event, _ in world.log.events if event not in FORESEEN]


def hostile_stream(rng: random.Random) -> bytes:
    parts = [HANDSHAKE if rng.random() < 0.5 else rng.choice(PIECES)]
    for _ in range(rng.randrange(4)):
        piece = rng.choice(PIECES)
        parts.append(damage(piece, rng) if rng.random() < 0.6 else piece)
    if rng.random() < 0.2:
        parts.insert(rng.randrange(len(parts) + 1), rng.randbytes(rng.randrange(300)))
    return b"".join(parts)


def _attack(client: SaslClient, stream: bytes, rng: random.Random) -> None:
    while stream:
        cut = rng.randrange(1, len(stream) + 1)
        client.send(stream[:cut])
        stream = stream[cut:]
        assert client.connection.principal == ANONYMOUS, "it has logged in"
        kept = client.connection._kept
        assert kept is None or len(kept.view) <= RECEIVE_BYTES_MAX + KEPT_WHILE_HELD, "it holds too much memory"
        assert client.world.server.receive_buffers.lent == 0, "it was lent a buffer"

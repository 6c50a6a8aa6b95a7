"""Hostile bytes for a connection: what is no frame, announces too much, or has garbage where a request should be."""

import random
import struct
from collections.abc import Callable

Payload = Callable[[random.Random], bytes]


def noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(1, 400))


def tls_hello(rng: random.Random) -> bytes:
    return b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(200)


def http(rng: random.Random) -> bytes:
    return b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nUser-Agent: " + b"x" * rng.randrange(100) + b"\r\n\r\n"


def huge_claim(rng: random.Random) -> bytes:
    return struct.pack(">i", rng.choice([2**31 - 1, 100 << 20, (100 << 20) + 1])) + rng.randbytes(50)


def negative_size(rng: random.Random) -> bytes:
    return struct.pack(">i", -rng.randrange(1, 2**31)) + rng.randbytes(20)


def unserved(rng: random.Random) -> bytes:
    """A request of an API, or of a version of one, that no broker has."""
    key, version = rng.choice([(3, 99), (18, -1), (0, 2), (999, 0), (-1, 0), (7, 0)])
    return struct.pack(">ihhih", 14, key, version, 7, 4) + b"fuzz"


def framed_noise(rng: random.Random) -> bytes:
    body = rng.randbytes(rng.randrange(0, 300))
    return struct.pack(">i", len(body)) + body


def plausible_header(rng: random.Random) -> bytes:
    """A right header of a real API, then garbage: reaches the decoders."""
    body = rng.randbytes(rng.randrange(0, 200))
    header = struct.pack(">hhih", rng.randrange(0, 80), rng.randrange(0, 18), rng.randrange(2**31), 4) + b"fuzz"
    return struct.pack(">i", len(header) + len(body)) + header + body


def hostile_count(rng: random.Random) -> bytes:
    """A Metadata request that claims two thousand million topics."""
    body = struct.pack(">hhihi", 3, 1, 1, -1, rng.choice([2**31 - 1, 10**6, -2]))
    return struct.pack(">i", len(body)) + body


def truncated(rng: random.Random) -> bytes:
    whole = plausible_header(rng)
    return whole[: rng.randrange(1, len(whole))]


PAYLOADS: list[Payload] = [
    noise,
    tls_hello,
    http,
    huge_claim,
    negative_size,
    unserved,
    framed_noise,
    plausible_header,
    plausible_header,
    plausible_header,
    hostile_count,
    truncated,
]

"""Random bytes and damaged messages against all decoders: each parses or raises DecodeError, nothing else.

`run(seed, inputs)` is for longer runs; a failure names the input, which the seed brings back.
"""

import random

from ottla.protocol.codec import decoder
from ottla.protocol.consumer_protocol import parse_assignment, parse_subscription
from ottla.protocol.primitives import DecodeError
from ottla.protocol.schema import Message
from tests.protocol.golden_vectors import vectors_of
from tests.protocol.known_messages import MESSAGES

EDGE_BYTES = b"\x00\x01\x02\x7f\x80\xff"


def run(seed: int, inputs: int) -> int:
    """Decode `inputs` inputs; return how many of them were messages."""
    rng = random.Random(seed)
    vectors = [(cls, version, data) for cls in MESSAGES for version, data, _ in vectors_of(cls)]
    parsed = 0
    for number in range(inputs):
        cls, version, data = rng.choice(vectors)
        damaged = rng.randbytes(rng.randrange(200)) if rng.random() < 0.2 else damage(data, rng)
        parsed += parses_or_is_refused(cls, version, damaged, f"seed {seed}, input {number}")
    return parsed


def damage(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, cut out or repeated."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        position = rng.randrange(len(out) + 1)
        match rng.randrange(4):
            case 0 if position < len(out):
                out[position] = rng.choice(EDGE_BYTES)
            case 1 if position < len(out):
                out[position] = rng.randrange(256)
            case 2:
                del out[position : position + rng.randint(1, 8)]
            case _:
                out[position:position] = out[position : position + rng.randint(1, 16)] or b"\xff"
    return bytes(out)


def parses_or_is_refused(cls: type[Message], version: int, data: bytes, where: str) -> bool:
    try:
        _, position = decoder(cls, version)(memoryview(data), 0, len(data))
    except DecodeError:
        return False
    except Exception as error:
        raise AssertionError(f"{where}: {cls.__name__} v{version} of {data.hex()}") from error
    finally:
        for parse in (parse_subscription, parse_assignment):
            _parse_apart(parse, data, where)
    assert position <= len(data), f"{where}: {cls.__name__} v{version} went past its end"
    return True


def _parse_apart(parse, data: bytes, where: str) -> None:
    try:
        parse(data)
    except DecodeError:
        pass
    except Exception as error:
        raise AssertionError(f"{where}: {parse.__name__} of {data.hex()}") from error

"""Record batches drawn from a seed, and what is done to them."""

import random

from tests.broker.wire import batch

CODECS = (0, 0, 0, 1, 2, 3, 4)
MAGIC_POSITION = 16


def drawn_records(rng: random.Random, wildness: float) -> bytes:
    records = _batch(rng)
    return rng.choice(_DAMAGES)(records, rng) if rng.random() < wildness else records


def _batch(rng: random.Random) -> bytes:
    values = [b"value %d" % rng.randrange(100) for _ in range(rng.choice((1, 1, 2, 5)))]
    if rng.random() < 0.7:
        return batch(*values, codec=rng.choice(CODECS))
    return batch(
        *values,
        producer_id=rng.choice((4711, 4712)),
        producer_epoch=rng.choice((0, 0, 0, 1)),
        base_sequence=rng.choice((0, 0, 1, 2, 5)),
    )


def _with_byte(records: bytes, position: int, value: int) -> bytes:
    changed = bytearray(records)
    changed[position] = value
    return bytes(changed)


def _flipped(records: bytes, rng: random.Random) -> bytes:
    position = rng.randrange(len(records))
    return _with_byte(records, position, records[position] ^ (1 << rng.randrange(8)))


_DAMAGES = (
    lambda records, rng: b"",
    lambda records, rng: records[: rng.randrange(1, len(records))],
    lambda records, rng: records + b"\0" * rng.randrange(1, 20),
    lambda records, rng: records + _batch(rng),
    lambda records, rng: _with_byte(records, MAGIC_POSITION, rng.randrange(4)),
    lambda records, rng: batch(b"x", producer_id=4713, producer_epoch=-1, base_sequence=0),
    lambda records, rng: batch(b"x", producer_id=4713, producer_epoch=0, base_sequence=-1),
    lambda records, rng: batch(b"x", control=True, producer_id=4713, producer_epoch=0, base_sequence=0),
    lambda records, rng: batch(b"x", log_append_time_ms=5000),
    lambda records, rng: batch(b"x" * 1_048_600),
    _flipped,
    _flipped,
)

"""Draws of a run, of which most are delays."""

import random


def randint(rng: random.Random, low: int, high: int) -> int:
    """What `rng.randint(low, high)` gives, and leaves behind, for a third of the calls."""
    width = high - low + 1
    bits = width.bit_length()
    drawn = rng.getrandbits(bits)
    while drawn >= width:
        drawn = rng.getrandbits(bits)
    return low + drawn

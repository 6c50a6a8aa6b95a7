"""Durations counted for metrics: plain ints, which a scrape reads (docs/operators.md §4.2).

Buckets are powers of two of 1.024 µs, found by the length of a number in bits: counting costs two additions and no
search. They are fine enough for a percentile within a factor of two, and the same for everything that is measured.

    bucket   durations
    ------   ---------------------
    0        less than 1.024 µs
    n        1.024 µs * 2^(n-1) up to 1.024 µs * 2^n
"""

from collections.abc import Iterable, Iterator
from typing import Final

# The bucket of a duration is the length in bits of its multiple of 1,024 ns.
UNIT_BITS: Final = 10
BUCKETS: Final = 64
# Of all buckets, those from 32.8 µs to 34.4 s are exported.
FIRST_EXPORTED: Final = 5
LAST_EXPORTED: Final = 25


class Histogram:
    """How often durations of each length were observed, and their sum.

    A caller that measures many at once may add to `buckets` and `sum_ns` itself."""

    __slots__ = ("buckets", "sum_ns")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        self.sum_ns = 0

    def observe(self, duration_ns: int) -> None:
        self.buckets[(duration_ns >> UNIT_BITS).bit_length()] += 1
        self.sum_ns += duration_ns

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """(upper bound in seconds, how many took less) of the exported buckets; the rest is in `count`."""
        below = sum(self.buckets[:FIRST_EXPORTED])
        for index in range(FIRST_EXPORTED, LAST_EXPORTED + 1):
            below += self.buckets[index]
            yield upper_bound_s(index), below


def upper_bound_s(index: int) -> float:
    """Of the durations in a bucket."""
    return (1 << UNIT_BITS << index) / 1e9


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """All in one."""
    total = Histogram()
    for each in histograms:
        total.buckets = [sum(pair) for pair in zip(total.buckets, each.buckets, strict=True)]
        total.sum_ns += each.sum_ns
    return total

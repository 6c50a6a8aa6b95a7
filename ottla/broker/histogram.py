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
# Behind the buckets of a list of counts: the sum of the durations.
SUM_NS: Final = BUCKETS
# Of all buckets, those from 32.8 µs to 34.4 s are exported.
FIRST_EXPORTED: Final = 5
LAST_EXPORTED: Final = 25


class Histogram:
    """How often durations of each length were observed, and their sum: `counts`, buckets first.

    The hottest paths have such a list of their own, and count in it without a call (`new_counts`)."""

    __slots__ = ("counts",)

    def __init__(self, counts: list[int] | None = None) -> None:
        self.counts = counts or new_counts()

    def observe(self, duration_ns: int) -> None:
        self.counts[(duration_ns >> UNIT_BITS).bit_length()] += 1
        self.counts[SUM_NS] += duration_ns

    @property
    def sum_ns(self) -> int:
        return self.counts[SUM_NS]

    @property
    def count(self) -> int:
        return sum(self.counts[:BUCKETS])

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """(upper bound in seconds, how many took less) of the exported buckets; the rest is in `count`."""
        below = sum(self.counts[:FIRST_EXPORTED])
        for index in range(FIRST_EXPORTED, LAST_EXPORTED + 1):
            below += self.counts[index]
            yield upper_bound_s(index), below


def upper_bound_s(index: int) -> float:
    """Of the durations in a bucket."""
    return (1 << UNIT_BITS << index) / 1e9


def new_counts() -> list[int]:
    return [0] * (BUCKETS + 1)


def merged(counts: Iterable[list[int]]) -> Histogram:
    """All in one."""
    return Histogram([sum(each) for each in zip(new_counts(), *counts, strict=True)])

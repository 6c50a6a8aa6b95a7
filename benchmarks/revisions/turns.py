"""Two trees in turns: what is measured of both, by row, and how far the pairs of a row are apart."""

import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import NamedTuple

from benchmarks.revisions.trees import Tree

AT_MOST = 1.02


class Row(NamedTuple):
    name: str
    unit: str


class Pair(NamedTuple):
    this: float
    older: float

    @property
    def ratio(self) -> float:
        """Of two zeros 1."""
        return self.this / self.older if self.older else 1.0 + self.this


Measured = dict[Row, Callable[[], float]]
Rows = dict[Row, list[Pair]]


class Comparison(NamedTuple):
    """`pairs`: one of each start of both trees, which differ in what a start draws, such as addresses and hashes."""

    row: Row
    pairs: list[Pair]
    at_most: float = AT_MOST

    @property
    def ratio(self) -> float:
        return statistics.median(pair.ratio for pair in self.pairs)

    @property
    def quartiles(self) -> tuple[float, float]:
        ratios = [pair.ratio for pair in self.pairs]
        if len(ratios) == 1:
            return ratios[0], ratios[0]
        first, _, third = statistics.quantiles(ratios, n=4, method="inclusive")
        return first, third

    @property
    def difference(self) -> str:
        """`not seen` where half of the starts lie on both sides of equality."""
        first, third = self.quartiles
        if first <= 1 <= third:
            return "none" if first == third else "not seen"
        return "more" if first > 1 else "less"

    @property
    def meets_target(self) -> bool:
        return self.ratio <= self.at_most


def by_turns(
    this: Tree, older: Tree, prepare: Callable[[Tree], AbstractContextManager[Measured]], starts: int, turns: int
) -> Rows:
    """Both are prepared `starts` times, and measured in turns each time. Who is first changes from start to start, and
    from turn to turn. Of each start, the pair with the median ratio counts, without the first one if there are more."""
    found: Rows = {}
    for start in range(starts):
        with ExitStack() as stack:
            trees = (this, older) if start % 2 == 0 else (older, this)
            prepared = {tree.name: stack.enter_context(prepare(tree)) for tree in trees}
            ours, theirs = prepared[this.name], prepared[older.name]
            for row, measure in ours.items():
                pairs = [_pair(measure, theirs[row], (start + turn) % 2 == 0) for turn in range(turns)]
                found.setdefault(row, []).append(_median(pairs[1:] or pairs))
    return found


def by_runs(this: Tree, older: Tree, run: Callable[[Tree], dict[Row, float]], runs: int) -> tuple[Rows, set[Row]]:
    """What one run finds of all rows at once; and the rows that only this tree has."""
    found: Rows = {}
    missing: set[Row] = set()
    for number in range(runs):
        trees = (this, older) if number % 2 == 0 else (older, this)
        values = {tree.name: run(tree) for tree in trees}
        ours, theirs = values[this.name], values[older.name]
        missing |= ours.keys() - theirs.keys()
        for row in ours:
            if row in theirs:
                found.setdefault(row, []).append(Pair(ours[row], theirs[row]))
    return found, missing


def _pair(ours: Callable[[], float], theirs: Callable[[], float], ours_first: bool) -> Pair:
    if ours_first:
        this = ours()
        return Pair(this, theirs())
    older = theirs()
    return Pair(ours(), older)


def _median(pairs: list[Pair]) -> Pair:
    return sorted(pairs, key=lambda pair: pair.ratio)[len(pairs) // 2]

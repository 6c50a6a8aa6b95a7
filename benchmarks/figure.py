"""A figure: what was measured, beside what its baseline did in the same run."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

NO_BASELINE = "–"


class NotMeasured(Exception):
    """What a suite lacks on this machine, in words for its user."""


@dataclass(frozen=True)
class Figure:
    """`pairs` holds (ours, baseline) of each round. The ratio is the median over the rounds, pair by pair, so that a
    machine that drifts between rounds drifts under both. With NO_BASELINE the baseline is 1, and bounds absolute."""

    name: str
    baseline: str
    unit: str
    pairs: Sequence[tuple[float, float]]
    at_least: float | None = None
    at_most: float | None = None
    note: str = field(default="")

    @property
    def ours(self) -> float:
        return statistics.median(ours for ours, _ in self.pairs)

    @property
    def theirs(self) -> float:
        return statistics.median(baseline for _, baseline in self.pairs)

    @property
    def ratio(self) -> float:
        return statistics.median(ours / baseline for ours, baseline in self.pairs)

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return f"≤ {self.at_most:g}" if self.at_most is not None else "reported"

    @property
    def meets_target(self) -> bool | None:
        if self.at_least is not None:
            return self.ratio >= self.at_least
        return self.ratio <= self.at_most if self.at_most is not None else None


def interleave(rounds: int, ours: Callable[[], float], baseline: Callable[[], float]) -> list[tuple[float, float]]:
    """Ours and the baseline in turn, after a warm-up round that does not count."""
    measured = [(ours(), baseline()) for _ in range(rounds + 1)]
    return measured[1:]

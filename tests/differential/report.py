"""What a comparison has found: how much was the same, what differs as intended, and the first of each other kind."""

from collections import Counter

from tests.differential.comparing import Difference, shortened, without_names
from tests.differential.exchange import Exchange
from tests.differential.intended import name_of

SHOWN_MAX = 40
REQUEST_CHARACTERS_MAX = 500


class Report:
    def __init__(self, seed: int, *, shows_whole_requests: bool = False) -> None:
        self.unexpected: dict[tuple[str, str], tuple[int, Exchange, Difference]] = {}
        self._seed = seed
        self._shows_whole_requests = shows_whole_requests
        self._exchanges = 0
        self._answers: Counter[str] = Counter()
        self._intended: Counter[str] = Counter()
        self._unexpected: Counter[tuple[str, str]] = Counter()

    def add(self, number: int, exchange: Exchange) -> None:
        self._exchanges += 1
        self._answers[type(exchange.theirs).__name__] += 1
        for difference in exchange.differences:
            name = name_of(exchange, difference)
            if name is not None:
                self._intended[name] += 1
                continue
            kind = (
                exchange.asked.api.name,
                f"{without_names(difference.path)} {difference.ours!r:.60} {difference.theirs!r:.60}",
            )
            self._unexpected[kind] += 1
            self.unexpected.setdefault(kind, (number, exchange, difference))

    def print(self, took_s: float, ready_s: float) -> None:
        for kind, (number, exchange, difference) in list(self.unexpected.items())[:SHOWN_MAX]:
            print(f"DIFFERENT {exchange.asked.api.name} {difference} ({self._unexpected[kind]} times)")
            asked = str(exchange.asked)
            print(f"    {asked if self._shows_whole_requests else shortened(asked, REQUEST_CHARACTERS_MAX)}")
            print(f"    again: python -m tests.differential --seed {self._seed} --episode {number}")
        if len(self.unexpected) > SHOWN_MAX:
            print(f"and {len(self.unexpected) - SHOWN_MAX} kinds more")
        print(f"{self._exchanges:,} exchanges of seed {self._seed} in {took_s:.0f} s, {ready_s:.0f} of them to start")
        for name, count in self._answers.most_common():
            print(f"{count:8,}  {name.lower()}")
        for name, count in self._intended.most_common():
            print(f"{count:8,}  intended: {name}")
        print(f"{sum(self._unexpected.values()):8,}  different")

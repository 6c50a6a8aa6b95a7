"""Which ways between hosts are cut, each direction by itself."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Cut:
    """Nothing gets from these hosts to those."""

    sources: frozenset[str]
    targets: frozenset[str]

    @classmethod
    def both_ways(cls, some: Collection[str], others: Collection[str]) -> "tuple[Cut, Cut]":
        return cls(frozenset(some), frozenset(others)), cls(frozenset(others), frozenset(some))


class Links:
    def __init__(self) -> None:
        # Called after a way was opened again.
        self.when_healed: list[Callable[[], None]] = []
        self.cuts: list[Cut] = []
        self._waiting: list[asyncio.Future[None]] = []

    def is_cut(self, source: str, target: str) -> bool:
        return bool(self.cuts) and any(source in cut.sources and target in cut.targets for cut in self.cuts)

    def cut(self, *cuts: Cut) -> None:
        self.cuts.extend(cuts)

    def heal(self, *cuts: Cut) -> None:
        """Ends these very cuts, if they have not ended; another one may still be on the same way."""
        self.cuts = [each for each in self.cuts if all(each is not cut for cut in cuts)]
        self._healed()

    def heal_all(self) -> None:
        self.cuts.clear()
        self._healed()

    async def open_between(self, one: str, other: str) -> None:
        """Returns when both directions are open."""
        while self.is_cut(one, other) or self.is_cut(other, one):
            healed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(healed)
            await healed

    def _healed(self) -> None:
        for action in self.when_healed:
            action()
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

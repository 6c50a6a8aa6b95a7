"""A book of what an operator has altered at whatever broker, and of what each thing has to be since."""

from collections.abc import Mapping
from typing import Generic, TypeVar

Owner = TypeVar("Owner")
Kept = TypeVar("Kept")


class Book(Generic[Owner, Kept]):
    """What each owner may have: one thing where the last request was answered. One whose answer was lost may be carried
    out any time later, so that no further one is made about its owner. None: it has nothing."""

    def __init__(self) -> None:
        self.possible: dict[Owner, tuple[Kept | None, ...]] = {}
        self.busy: set[Owner] = set()

    def known(self, owner: Owner) -> Kept | None:
        """Of one that is not busy."""
        (kept,) = self.possible.get(owner, (None,))
        return kept

    def asked(self, wanted: Mapping[Owner, Kept | None]) -> dict[Owner, Kept | None]:
        """What each of them had before."""
        before = {owner: self.known(owner) for owner in wanted}
        self.busy |= wanted.keys()
        self.possible |= {owner: (before[owner], kept) for owner, kept in wanted.items()}
        return before

    def answered(self, owner: Owner, kept: Kept | None) -> None:
        self.possible[owner] = (kept,)
        self.busy.discard(owner)

    def wrong(self, found: Mapping[Owner, Kept]) -> list[str]:
        return [
            f"{owner} has {found.get(owner)}"
            for owner, possible in self.possible.items()
            if found.get(owner) not in possible
        ]

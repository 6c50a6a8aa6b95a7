"""Ways between the brokers of a process, each direction by itself: what is cut, late, slow or held up."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

STORE: Final = "store"
CLIENTS: Final = "clients"

Place: TypeAlias = int | str
"""A node id, or one of the two above."""


@dataclass(slots=True)
class LinkState:
    """What happens to all that is sent from one place to another."""

    is_cut: bool = False
    """It is swallowed."""
    resets: bool = False
    """With `is_cut`: connections break, and new ones are refused."""
    is_paused: bool = False
    """It waits."""
    delay_ms: float = 0
    bytes_per_s: float | None = None
    """None: as fast as it goes."""


OPEN: Final = LinkState()


class Ways:
    """Everything here runs on the loop of the brokers."""

    def __init__(self) -> None:
        self._ways: dict[tuple[Place, Place], LinkState] = {}
        # Nothing arrives at these: their processes are stopped.
        self._stopped: set[Place] = set()
        self.when_changed: list[Callable[[], None]] = []
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_used(self) -> bool:
        return bool(self._ways or self._stopped)

    def between(self, source: Place, target: Place) -> LinkState:
        return self._ways.get((source, target), OPEN)

    def is_held(self, source: Place, target: Place) -> bool:
        """What is sent waits until that ends."""
        return target in self._stopped or self.between(source, target).is_paused

    def altered(self, source: Place, target: Place) -> LinkState:
        """The way, to be changed; `changed` comes next."""
        return self._ways.setdefault((source, target), LinkState())

    def heal(self, *places: Place) -> None:
        """All ways, those from and to one place, or those between two."""
        self._ways = {key: way for key, way in self._ways.items() if not set(places) <= set(key)}
        self.changed()

    def stop(self, place: Place) -> None:
        self._stopped.add(place)
        self.changed()

    def go_on(self, place: Place) -> None:
        self._stopped.discard(place)
        self.changed()

    def is_stopped(self, place: Place) -> bool:
        return place in self._stopped

    def changed(self) -> None:
        for action in self.when_changed:
            action()
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def open_for_connecting(self, source: Place, target: Place) -> None:
        """Returns when a connection can be made: packets of both directions come through. Raises
        ConnectionRefusedError where a way breaks connections."""
        while True:
            both = self.between(source, target), self.between(target, source)
            if any(way.is_cut and way.resets for way in both):
                raise ConnectionRefusedError(f"the link between {source} and {target} is cut")
            if not any(way.is_cut or way.is_paused for way in both):
                break
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(changed)
            await changed
        delay_ms = sum(way.delay_ms for way in both)
        if delay_ms:
            await asyncio.sleep(delay_ms / 1000)

    def in_force(self) -> Iterator[tuple[Place, Place, LinkState]]:
        """From where, to where, and what happens there."""
        for (source, target), way in self._ways.items():
            if way != OPEN:
                yield source, target, way

"""What an attack is."""

import random
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Flag, auto
from pathlib import Path
from typing import ClassVar

from tests.siege.wire import Address, Wire, has_ended

BAIT = "siege-bait"
"""A topic with `BAIT_PARTITIONS` partitions of a megabyte each, to fetch and to ask about."""
BAIT_PARTITIONS = 48
AT_A_TIME = "connections at a time that the broker had accepted"
"""In the report: the most that were seen."""


class May(Flag):
    """What an attack may do to others: what no broker could prevent."""

    NOTHING = 0
    DELAY = auto()
    """Produce requests wait, or are refused: what p99 promises does not hold while it lasts."""


@dataclass
class Target:
    """The broker, and what else an attack gets."""

    address: Address
    login: Address
    """Of the listener with a login."""
    tls: Address
    """Of the one with TLS and a login."""
    pid: int
    data_dir: Path
    duration_s: float
    chance: random.Random

    def until_over(self) -> Iterator[float]:
        """For as long as the attack lasts, the time that is left."""
        ends = time.monotonic() + self.duration_s
        while (left_s := ends - time.monotonic()) > 0:
            yield left_s

    def descriptors(self) -> int:
        """How many the broker has: what it has accepted has one each."""
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    def pause(self, seconds: float) -> None:
        """Where there is nothing to wait for but time."""
        time.sleep(seconds)


class Attack(ABC):
    """Runs in a process of its own, which ends with it: the broker sees its connections go."""

    name: ClassVar[str]
    may: ClassVar[May] = May.NOTHING
    ratio_max: ClassVar[float] = 5.0
    """What p99 of produce may be, of what it was before."""
    at_a_time: ClassVar[int] = 0
    """How many connections it has to hold `AT_A_TIME`: with fewer it proves less than it says."""
    needs_small_disk: ClassVar[bool] = False

    def __init__(self, target: Target) -> None:
        self.target = target
        self.done: Counter[str] = Counter()
        """What it has done, by what it is called in the report."""

    @abstractmethod
    def run(self) -> None:
        """For as long as `target.until_over`. An OSError of one connection is part of the game; one that comes out of
        here is a failure."""

    def count_at_a_time(self, descriptors_before: int) -> None:
        """Looks how many connections the broker holds now, beyond the descriptors that it had before the attack."""
        self.done[AT_A_TIME] = max(self.done[AT_A_TIME], self.target.descriptors() - descriptors_before)

    def clean_up(self) -> None:  # noqa: B027 - most leave nothing behind but connections
        """Takes away what a broker has to keep, such as topics, so that it can be asked to have released the rest."""

    def connect(self, client_id: str | None = "siege", **options: int) -> Wire:
        return Wire(self.target.address, client_id, **options)

    def connections(self, count: int, **options: int) -> list[Wire]:
        """As many as the broker accepts."""
        made: list[Wire] = []
        for _ in range(count):
            with suppress(OSError):
                made.append(self.connect(**options))
        self.done["connections"] += len(made)
        return made


def still_held(wires: list[Wire]) -> list[Wire]:
    """Those that the broker has not ended; the others are closed."""
    held: list[Wire] = []
    for wire in wires:
        if has_ended(wire.socket):
            wire.socket.close()
        else:
            held.append(wire)
    return held

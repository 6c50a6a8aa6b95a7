"""What a test has done to brokers, links and disks, for the report of its failure."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from time import time


@dataclass(frozen=True, slots=True)
class FaultStep:
    """One step, with both times, in milliseconds since the epoch."""

    what: str
    transport_ms: int
    broker_ms: int

    def __str__(self) -> str:
        return f"{_text(self.transport_ms)} (broker time {_text(self.broker_ms)})  {self.what}"


class FaultSteps:
    """Everything here runs on the loop of the brokers."""

    def __init__(self, broker_wall_ms: Callable[[], int]) -> None:
        """`broker_wall_ms`: the time of the brokers."""
        self._broker_wall_ms = broker_wall_ms
        self._steps: list[FaultStep] = []

    def note(self, what: str) -> None:
        self._steps.append(FaultStep(what, int(time() * 1000), self._broker_wall_ms()))

    def since_clear(self) -> list[FaultStep]:
        """The oldest first."""
        return list(self._steps)

    def clear(self) -> None:
        self._steps.clear()


def _text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]

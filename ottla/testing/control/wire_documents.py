"""What is asked and answered over HTTP about what goes over the wire: requests, captures, coverage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkBody:
    text: str


@dataclass(frozen=True, slots=True)
class WireLine:
    at_ms: float
    """Since the first of those that are shown."""
    connection: str
    client_id: str | None
    api: str
    version: int
    what: str
    member_id: str
    error: str | None
    """`NONE` where it went well; null where there is no answer yet."""
    duration_ms: float | None


@dataclass(frozen=True, slots=True)
class WireLines:
    requests: Sequence[WireLine]


@dataclass(frozen=True, slots=True)
class CaptureDocument:
    is_over: bool
    bytes: int
    """Of the file, as far as it is written."""
    ended_early: str | None
    """Why it does not have all."""


@dataclass(frozen=True, slots=True)
class MarkDocument:
    is_captured: bool
    """Whether there is a capture that has it."""


@dataclass(frozen=True, slots=True)
class CoverageDocument:
    """As the file that `pytest --ottla-coverage` writes, and the same in three lines."""

    apis: Mapping[str, int]
    """How often, by `API vVERSION by SOFTWARE`."""
    errors: Mapping[str, int]
    injected: Mapping[str, int]
    """Of the errors, those that rules of faults have answered."""
    transitions: Mapping[str, int]
    causes: Mapping[str, int]
    features: Mapping[str, int]
    never: Mapping[str, Sequence[str]]
    """By API that was used, the errors of Kafka's that no client was answered."""
    text: Sequence[str]

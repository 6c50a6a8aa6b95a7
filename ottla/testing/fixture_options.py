"""What ini, command line and the marker `kafka` say about the brokers of the fixtures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import pytest

from ottla.broker.config.options import ConfigError
from ottla.testing.audit.auditor import MODES
from ottla.testing.isolation import ISOLATIONS
from ottla.testing.testbed import Testbed

LEAKS: Final = ("warn", "error", "ignore")
UNUSED_FAULTS: Final = ("error", "warn", "ignore")
CLOCKS: Final = ("real", "frozen")
THREAD: Final = "thread"
PROCESS: Final = "process"
FILE: Final = (str, Path)
MARKER_TYPES: Final[Mapping[str, tuple[Any, str]]] = {
    "topics": (Mapping, 'topics with their partitions, as in {"orders": 3}'),
    "settings": (Mapping, 'server properties, as in {"num.partitions": 3}'),
    "faults": (FILE, "the name of a file with rules; a test makes rules of its own by kafka.fault(...)"),
    "seed": (FILE, "the name of a file"),
    "brokers": (int, "a whole number"),
}
"""What an argument of the marker has to be, where no list of choices says so."""

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class FixtureOptions:
    brokers: int
    settings: Mapping[str, object]
    profile: str
    isolation: str
    topics: Mapping[str, int]
    data: str
    deadline: float
    leaks: str
    unused_faults: str
    fault_seed: int
    audit: str = "errors"
    faults: str | Path | None = None
    """A file with rules that hold from the begin of the test."""
    seed: Path | None = None
    """A file with what the broker has at the begin of the test."""
    clock: str | datetime = "real"
    """How broker time begins: real, frozen, or frozen at a moment."""
    unsynced: bool = False
    """Whether disks can lose what was not synced."""
    where: str = THREAD
    """A thread of the test's process, or a process of its own."""

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        choices = (
            ("isolation", ISOLATIONS),
            ("leaks", LEAKS),
            ("unused_faults", UNUSED_FAULTS),
            ("audit", MODES),
            ("where", (THREAD, PROCESS)),
        )
        for name, allowed in choices:
            value = getattr(self, name)
            if value not in allowed:
                raise ConfigError(f"ottla_{name}={value!r}: expected one of {', '.join(allowed)}")
        if self.clock not in CLOCKS and not isinstance(self.clock, datetime):
            raise ConfigError(f"clock={self.clock!r}: expected one of {', '.join(CLOCKS)}, or a datetime")

    @property
    def key(self) -> tuple[object, ...]:
        """The same for tests that can share a broker."""
        settings = tuple(sorted((name, str(each)) for name, each in self.settings.items()))
        return self.brokers, self.profile, self.unsynced, settings

    def testbed(self, topics: Mapping[str, int] | None = None) -> Testbed:
        return Testbed(
            brokers=self.brokers,
            settings=self.settings,
            profile=self.profile,
            topics=topics,
            data=self.data,
            deadline=self.deadline,
            fault_seed=self.fault_seed,
            unsynced=self.unsynced,
        )


def session_options(config: pytest.Config) -> FixtureOptions:
    """What ini and command line say. Raises ConfigError."""
    lines: list[str] = config.getini("ottla_settings")
    settings = dict(line.split("=", 1) for line in lines if "=" in line)
    wrong = [line for line in lines if "=" not in line]
    if wrong:
        raise ConfigError(f"ottla_settings: {wrong[0]!r} is not NAME=VALUE")
    return FixtureOptions(
        brokers=_number(config, "ottla_brokers", int),
        settings=settings,
        profile=config.getini("ottla_profile"),
        isolation=config.getoption("ottla_isolation") or config.getini("ottla_isolation"),
        topics={},
        data=config.getini("ottla_data"),
        deadline=_number(config, "ottla_deadline", float),
        leaks=config.getini("ottla_leaks"),
        unused_faults=config.getini("ottla_unused_faults"),
        fault_seed=cast("int", config.getoption("ottla_seed")),
        seed=config.rootpath / config.getini("ottla_seed_file") if config.getini("ottla_seed_file") else None,
        audit=config.getoption("ottla_audit") or config.getini("ottla_audit"),
        where=config.getoption("ottla_where") or config.getini("ottla_where"),
    )


def _number(config: pytest.Config, name: str, kind: Callable[[str], N]) -> N:
    """Raises ConfigError."""
    text: str = config.getini(name)
    try:
        return kind(text)
    except ValueError:
        expected = "a whole number" if kind is int else "seconds, as a number"
        raise ConfigError(f"{name}={text!r}: expected {expected}") from None


def _check_marker(given: Mapping[str, object]) -> None:
    """Raises ConfigError."""
    for name, (kind, expected) in MARKER_TYPES.items():
        value = given.get(name)
        if value is not None and not isinstance(value, kind):
            raise ConfigError(f"@pytest.mark.kafka({name}={value!r}): expected {expected}")


def marked_options(options: FixtureOptions, node: pytest.Item) -> FixtureOptions:
    """The options with what the marker says; the settings of both hold. Raises ConfigError."""
    for marker in reversed(list(node.iter_markers("kafka"))):
        given: dict[str, Any] = dict(marker.kwargs)
        _check_marker(given)
        settings = {**options.settings, **given.pop("settings", {})}
        if given.get("seed") is not None:
            given["seed"] = node.path.parent / given["seed"]
        options = replace(options, settings=settings, **given)
    return options

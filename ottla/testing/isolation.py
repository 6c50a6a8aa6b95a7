"""What happens between two tests: the modes of isolation (docs/isolation.md).

`reset` and `snapshot` leave the world of a testbed as the next test wants it, most of the time: the end of a test gives
the state that its own mode begins with, and the begin of the next one has something to do only if that wants another.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from ottla.broker.config.options import ConfigError
from ottla.testing.testbed import EMPTY, Testbed
from ottla.testing.worlds import describe_leak

ISOLATIONS: Final = ("reset", "snapshot", "names", "fresh")
SEED_SNAPSHOT: Final = "seed:"
"""In front of the names of snapshots that fixtures take."""


class IsolationOptions(Protocol):
    @property
    def isolation(self) -> str: ...

    @property
    def seed(self) -> "str | Path | Mapping[str, Any] | None":
        """What a test begins with, beside what the testbed has at its start."""
        ...


class World(Protocol):
    """All that brokers remember, wherever they are. Connections of clients that are open are given as sentences."""

    @property
    def contents(self) -> str | None:
        """EMPTY as at the start, the name of a snapshot, or None where it may be anything."""

    @contents.setter
    def contents(self, contents: str | None) -> None: ...

    def reset(self) -> list[str]: ...

    def load(self, seed: "str | Path | Mapping[str, Any]") -> None:
        """Raises SeedError, OSError."""

    def snapshot_names(self) -> Collection[str]: ...

    def take_snapshot(self, name: str) -> None: ...

    def restore(self, name: str) -> list[str]: ...

    def drop_snapshot(self, name: str) -> None: ...

    def open_connections(self) -> list[str]: ...

    def stop(self) -> None: ...


class TestbedWorld:
    """That of brokers in this process."""

    __test__ = False

    def __init__(self, bed: Testbed) -> None:
        self._bed = bed

    @property
    def contents(self) -> str | None:
        return self._bed.contents

    @contents.setter
    def contents(self, contents: str | None) -> None:
        self._bed.contents = contents

    def reset(self) -> list[str]:
        return list(map(describe_leak, self._bed.run(self._bed.reset()).leaks))

    def load(self, seed: "str | Path | Mapping[str, Any]") -> None:
        self._bed.run(self._bed.load(seed))

    def snapshot_names(self) -> Collection[str]:
        return self._bed.snapshots.names

    def take_snapshot(self, name: str) -> None:
        self._bed.run(self._bed.snapshot(name))

    def restore(self, name: str) -> list[str]:
        return list(map(describe_leak, self._bed.run(self._bed.restore(name)).leaks))

    def drop_snapshot(self, name: str) -> None:
        self._bed.call(self._bed.snapshots.drop, name)

    def open_connections(self) -> list[str]:
        return list(map(describe_leak, self._bed.run(self._bed.open_connections())))

    def stop(self) -> None:
        self._bed.stop()


def begin(world: World, options: IsolationOptions) -> None:
    """Before a test. Raises SeedError, OSError, and ConfigError for a seed where nothing is emptied."""
    try:
        if options.isolation == "names":
            _prepare_names(world, options)
        else:
            _prepare(world, options)
    finally:
        # From here on the test changes it, and a seed that is refused may be there in part.
        world.contents = None


def end(world: World, options: IsolationOptions) -> list[str]:
    """After a test: the connections that it has left open. With `fresh` the brokers are stopped, with `names` nothing
    happens."""
    if options.isolation == "fresh":
        leaks = world.open_connections()
        world.stop()
        return leaks
    if options.isolation == "names":
        return []
    name, known = _snapshot_name(options), list(world.snapshot_names())
    for each in known:
        if not each.startswith(SEED_SNAPSHOT):
            world.drop_snapshot(each)
    if options.isolation == "snapshot" and name in known:
        return world.restore(name)
    return world.reset()


def _prepare_names(world: World, options: IsolationOptions) -> None:
    if options.seed is not None:
        raise ConfigError("a seed with isolation=names would be loaded again for each test: take reset or snapshot")
    if world.contents:
        # The seed of a test before this one, which restored it at its end.
        world.reset()


def _prepare(world: World, options: IsolationOptions) -> None:
    keeps = options.isolation == "snapshot"
    name = _snapshot_name(options)
    if keeps and world.contents == name:
        return
    if keeps and name in world.snapshot_names():
        world.restore(name)
        return
    if world.contents != EMPTY:
        world.reset()
    if options.seed is not None:
        world.load(options.seed)
    if keeps:
        world.take_snapshot(name)


def _snapshot_name(options: IsolationOptions) -> str:
    return f"{SEED_SNAPSHOT}{'' if options.seed is None else options.seed}"

"""What happens between two tests: the modes of isolation (docs/isolation.md).

`reset` and `snapshot` leave the world of a testbed as the next test wants it, most of the time: the end of a test gives
the state that its own mode begins with, and the begin of the next one has something to do only if that wants another.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from ottla.broker.config.options import ConfigError
from ottla.testing.testbed import EMPTY, Testbed
from ottla.testing.views import ConnectionView

ISOLATIONS: Final = ("reset", "snapshot", "names", "fresh")
SEED_SNAPSHOT: Final = "seed:"
"""In front of the names of snapshots that fixtures take."""


class IsolationOptions(Protocol):
    @property
    def isolation(self) -> str: ...

    @property
    def brokers(self) -> int: ...

    @property
    def seed(self) -> "str | Path | Mapping[str, Any] | None":
        """What a test begins with, beside what the testbed has at its start."""
        ...


def begin(bed: Testbed, options: IsolationOptions) -> None:
    """Before a test. Raises SeedError, OSError, and ConfigError for a seed where nothing is emptied."""
    if options.isolation == "names":
        if options.seed is not None:
            raise ConfigError("a seed with isolation=names would be loaded again for each test: take reset or snapshot")
        if bed.contents:
            # The seed of a test before this one, which restored it at its end.
            bed.run(bed.reset())
    else:
        _prepare(bed, options)
    # From here on the test changes it.
    bed.contents = None


def end(bed: Testbed, options: IsolationOptions) -> tuple[ConnectionView, ...]:
    """After a test: the connections that it has left open. With `fresh` the testbed is stopped, with `names` nothing
    happens."""
    if options.isolation == "fresh":
        leaks = tuple(bed.run(bed.open_connections()))
        bed.stop()
        return leaks
    if options.isolation == "names":
        return ()
    name = _snapshot_name(options)
    own = [each for each in bed.snapshots.names if not each.startswith(SEED_SNAPSHOT)]
    for each in own:
        bed.call(bed.snapshots.drop, each)
    if options.isolation == "snapshot" and name in bed.snapshots.names:
        return bed.run(bed.restore(name)).leaks
    return bed.run(bed.reset()).leaks


def _prepare(bed: Testbed, options: IsolationOptions) -> None:
    # Replicas of several brokers are not restored together: there the seed is loaded again.
    keeps = options.isolation == "snapshot" and options.brokers == 1
    name = _snapshot_name(options)
    if keeps and bed.contents == name:
        return
    if keeps and name in bed.snapshots.names:
        bed.run(bed.restore(name))
        return
    if bed.contents != EMPTY:
        bed.run(bed.reset())
    if options.seed is not None:
        bed.run(bed.load(options.seed))
    if keeps:
        bed.run(bed.snapshot(name))


def _snapshot_name(options: IsolationOptions) -> str:
    return f"{SEED_SNAPSHOT}{'' if options.seed is None else options.seed}"

"""What a disk of the cluster refuses: a full one, a bad one, or any while its broker has no descriptors left."""

import errno
import random
from collections.abc import Callable, Sequence

from tests.fakes.disk import LOOKS, NEED_DESCRIPTORS
from tests.simulation.disk import SimulatedDisk

Errors = tuple[int, Sequence[str]]
"""Their number, and the operations: errors of one kind come together."""

DISK_ERRORS: tuple[Errors, ...] = (
    (errno.ENOSPC, ("writev", "make_directory")),
    (errno.ENOSPC, ("writev", "fsync")),
    (errno.EMFILE, ("open", "sync_directory")),
    (errno.EIO, ("writev", "truncate")),
    (errno.EIO, ("fsync",)),
    (errno.EIO, ("rename", "remove", "sync_directory")),
)
READ_ERRORS: tuple[Errors, ...] = (
    (errno.EMFILE, NEED_DESCRIPTORS),
    (errno.EIO, ("pread",)),
    (errno.EIO, ("pread", "read_bytes")),
    (errno.EIO, ("read_bytes", "list_directory", *LOOKS)),
    (errno.EIO, ("pread", "writev", "fsync")),
)


class DiskErrors:
    """Those of one time: what comes before the others, and what follows from it."""

    def __init__(self, rng: random.Random, make_rng: Callable[[str], random.Random]) -> None:
        self._rng = rng
        # Of their own: where none is drawn from them, worlds are what they were without them.
        self._reads_rng = make_rng("refused reads")
        self._repairs_rng = make_rng("repaired disks")

    def draw(self) -> tuple[int, list[tuple[str, int]]]:
        """The number, and which operations fail, after how many others of the kind."""
        drawn = _draw_from(self._rng, DISK_ERRORS)
        return _draw_from(self._reads_rng, READ_ERRORS) if self._reads_rng.random() < 0.4 else drawn

    def draw_goes_on(self) -> bool:
        """Whether the broker goes on when its disk is repaired, if it says of no log that it cannot."""
        return self._repairs_rng.random() < 0.5


def _draw_from(rng: random.Random, of: Sequence[Errors]) -> tuple[int, list[tuple[str, int]]]:
    code, operations = rng.choice(of)
    failures: list[tuple[str, int]] = []
    for operation in operations:
        # As often as the first draw says, and each after its own.
        failures += [(operation, rng.choice([0, 0, 5])) for _ in range(rng.choice([1, 3, 200]))]
    return code, failures


def refuse(disk: SimulatedDisk, code: int, failures: Sequence[tuple[str, int]]) -> None:
    for operation, after in failures:
        disk.fail(operation, OSError(code, "the simulated disk fails"), after=after)

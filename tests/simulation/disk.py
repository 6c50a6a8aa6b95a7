"""The fake disk on a machine that goes on living: crash after crash, with everything it does in the trace."""

import random
from pathlib import Path

from tests.fakes.disk import FakeDisk, Loss, Operation
from tests.simulation.loop import Crash
from tests.simulation.offloaded import current_work
from tests.simulation.trace import Trace, summary


class SimulatedDisk(FakeDisk):
    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace
        self._fuse: int | None = None
        self._fuse_rng = random.Random()

    def light_fuse(self, rng: random.Random, operations: int) -> None:
        """The process crashes during the n-th operation from now; of a write, any part may then have happened."""
        self._fuse_rng = rng
        self._fuse = operations

    def put_out_fuse(self) -> None:
        self._fuse = None

    def take_failure(self, operation: str) -> OSError | None:
        work = current_work()
        if work is not None:
            work.maybe_suspend()
        return super().take_failure(operation)

    def do(self, operation: Operation) -> None:
        work = current_work()
        if work is not None:
            work.check()
        if self._fuse is not None:
            self._fuse -= 1
            if self._fuse <= 0:
                if self._fuse == 0 and operation[0] == "write":
                    self._do(("write", operation[1], operation[2][: self._fuse_rng.randint(0, len(operation[2]))]))
                # A process that is dying of it changes nothing any more.
                raise Crash
        self._do(operation)
        # Opening makes a file and opens it in one.
        if work is not None and operation[0] != "create":
            work.maybe_suspend()

    def _do(self, operation: Operation) -> None:
        super().do(operation)
        # Nothing is replayed from it here, and a long run would fill the memory with it.
        self.journal.clear()
        name, what, *rest = operation
        if name == "write":
            rest = [summary(rest[0])]
        self._trace.note("disk", name, what, *rest)

    def holder_has_died(self) -> None:
        """Its locks are free and its files closed, the fuse is out, and there is room on the disk again."""
        self.locked.clear()
        self.open_files.clear()
        self._fuse = None
        self.repair()

    def repair(self) -> None:
        self._failures.clear()

    def rot(self, path: Path, position: int, bit: int) -> None:
        """Silently, what was synced too."""
        inode = self._inode_at(path)
        inode.content[position] ^= 1 << bit
        inode.synced = bytes(inode.content[: len(inode.synced)])
        self._trace.note("disk rots", path, position, bit)

    def first_unsynced(self, path: Path, size: int) -> int | None:
        """The first of the file's first `size` bytes that a loss of power might take; None if there is none."""
        inode = self._inode_at(path)
        content, synced = inode.content[:size], inode.synced[:size]
        if content == synced:
            return None
        return next(
            (n for n, (one, other) in enumerate(zip(content, synced, strict=False)) if one != other), len(synced)
        )

    def has_durable_name(self, path: Path) -> bool:
        return path.name in self._durable_names.get(str(path.parent), {})

    def lose_power(self, rng: random.Random, *, orders_names: bool = True) -> None:
        """Unsynced contents and names are gone, or partly gone; what is left is on the disk for good."""
        torn = Loss.TORN if orders_names else Loss.UNORDERED
        self._lose(rng.choice([Loss.UNSYNCED, Loss.SOME, torn]), rng)
        for inode in self._inodes.values():
            inode.synced = bytes(inode.content)
        self._durable_names = {directory: dict(names) for directory, names in self._names.items()}

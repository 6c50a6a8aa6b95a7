"""The fake disk on a machine that goes on living: crash after crash, with everything it does in the trace."""

import random

from tests.fakes.disk import FakeDisk, Operation
from tests.simulation.trace import Trace, summary


class SimulatedDisk(FakeDisk):
    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def do(self, operation: Operation) -> None:
        super().do(operation)
        # Nothing is replayed from it here, and a long run would fill the memory with it.
        self.journal.clear()
        words = [summary(word) if isinstance(word, (bytes, bytearray, memoryview)) else word for word in operation]
        self._trace.note("disk", *words)

    def release_locks(self) -> None:
        """Their holder has died."""
        self.locked.clear()

    def lose_power(self, rng: random.Random) -> None:
        """Unsynced contents and names are gone, or partly gone; what is left is on the disk for good."""
        self._lose(rng if rng.random() < 0.5 else None)
        for inode in self._inodes.values():
            inode.synced = bytes(inode.content)
        self._durable_names = {directory: dict(names) for directory, names in self._names.items()}

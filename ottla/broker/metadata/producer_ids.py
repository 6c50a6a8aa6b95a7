"""Producer ids, taken from the metadata store in blocks, so that none is ever given twice (§13.3.4).

The store knows where the next block begins. What is left of a block when the broker stops is never given.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.cluster.store import (
    ABSENT,
    CommitResult,
    Committed,
    Conflict,
    Expect,
    Put,
    Snapshot,
    Transaction,
    Unavailable,
)

if TYPE_CHECKING:
    from ottla.broker.metadata.cluster_metadata import ClusterMetadata

KEY = "producer-ids"
BLOCK_SIZE = 1000
TRIES_MAX = 10

# The id, or None while the store cannot give a block.
Done = Callable[[int | None], None]


class ProducerIds:
    def __init__(self, metadata: "ClusterMetadata") -> None:
        self._metadata = metadata
        self._next_id = 0
        self._block_end = 0
        self._waiting: list[Done] = []
        self._tries_left = 0

    def take(self, done: Done) -> None:
        if self._next_id < self._block_end and not self._waiting:
            self._give(done)
            return
        self._waiting.append(done)
        if len(self._waiting) == 1:
            self._tries_left = TRIES_MAX
            self._take_block()

    def _give(self, done: Done) -> None:
        producer_id = self._next_id
        self._next_id += 1
        done(producer_id)

    def _take_block(self) -> None:
        self._metadata.read(KEY, self._claim)

    def _claim(self, found: Snapshot | Unavailable) -> None:
        if isinstance(found, Unavailable):
            self._refuse_waiting()
            return
        entry = next((entry for entry in found.entries if entry.key == KEY), None)
        start = int(entry.value) if entry is not None else 0
        revision = entry.revision if entry is not None else ABSENT
        claim = Put(KEY, str(start + BLOCK_SIZE).encode())

        def claimed(result: CommitResult) -> None:
            if isinstance(result, Committed):
                self._next_id, self._block_end = start, start + BLOCK_SIZE
                self._serve_waiting()
            elif isinstance(result, Conflict) and self._tries_left > 0:
                # Another broker was quicker.
                self._tries_left -= 1
                self._take_block()
            else:
                self._refuse_waiting()

        self._metadata.commit(Transaction((Expect(KEY, revision),), (claim,)), claimed)

    def _serve_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            if self._next_id < self._block_end:
                self._give(done)
            else:
                self.take(done)

    def _refuse_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(None)

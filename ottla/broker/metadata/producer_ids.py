"""Producer ids, taken from the metadata store in blocks, so that none is ever given twice (§13.3.4).

The store knows where the next block begins. What is left of a block when the broker stops is never given.
"""

import asyncio
from collections import deque

from ottla.broker.metadata.cluster_metadata import TRIES_MAX, ClusterMetadata
from ottla.broker.runtime import Runtime
from ottla.cluster.store import ABSENT, Committed, Conflict, Expect, Put, Transaction, Unavailable
from ottla.protocol.errors import ErrorCode, error_for

KEY = "producer-ids"
BLOCK_SIZE = 1000
# With fewer ids at hand the next block is claimed: a step of a coordinator cannot wait for one.
CLAIMED_AHEAD = 100


class ProducerIds:
    def __init__(self, runtime: Runtime, metadata: ClusterMetadata) -> None:
        self._runtime = runtime
        self._metadata = metadata
        # Invariant: none is empty.
        self._blocks: deque[range] = deque()
        self.claimed_until = 0
        """Above all ids that this broker has claimed."""
        # Gives whether there is a new block; one for all who need it.
        self._claim: asyncio.Task[bool] | None = None

    @property
    def unused(self) -> tuple[range, ...]:
        """Ids that this broker has claimed and not given out."""
        return tuple(self._blocks)

    def take_now(self) -> int | None:
        """One that is at hand, or None. The next block is claimed before the last id is given."""
        self.claim_ahead()
        return self._take() if self._blocks else None

    def claim_ahead(self) -> None:
        """Claim a block if few ids are left and none is being claimed."""
        if self._claim is None and sum(map(len, self._blocks)) < CLAIMED_AHEAD:
            self._claim = self._runtime.spawn(self._claim_block(), "producer ids")

    async def take(self) -> int:
        """Raises COORDINATOR_LOAD_IN_PROGRESS while the store cannot give a block."""
        while not self._blocks:
            if self._claim is None:
                self._claim = self._runtime.spawn(self._claim_block(), "producer ids")
            if not await self._claim:
                raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the metadata store gives no producer ids now")
        return self._take()

    def _take(self) -> int:
        block = self._blocks.popleft()
        if len(block) > 1:
            self._blocks.appendleft(block[1:])
        return block[0]

    async def _claim_block(self) -> bool:
        try:
            for _ in range(TRIES_MAX):
                found = await self._metadata.read(KEY)
                if isinstance(found, Unavailable):
                    return False
                entry = next((entry for entry in found.entries if entry.key == KEY), None)
                start, revision = (0, ABSENT) if entry is None else (int(entry.value), entry.revision)
                claim = Put(KEY, str(start + BLOCK_SIZE).encode())
                result = await self._metadata.commit(Transaction((Expect(KEY, revision),), (claim,)))
                if isinstance(result, Committed):
                    self._blocks.append(range(start, start + BLOCK_SIZE))
                    self.claimed_until = start + BLOCK_SIZE
                    return True
                if not isinstance(result, Conflict):
                    return False
            return False
        finally:
            self._claim = None

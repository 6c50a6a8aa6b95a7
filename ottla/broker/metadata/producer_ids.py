"""Producer ids, taken from the metadata store in blocks, so that none is ever given twice (§13.3.4).

The store knows where the next block begins. What is left of a block when the broker stops is never given.
"""

import asyncio

from ottla.broker.metadata.cluster_metadata import TRIES_MAX, ClusterMetadata
from ottla.broker.runtime import Runtime
from ottla.cluster.store import ABSENT, Committed, Conflict, Expect, Put, Transaction, Unavailable
from ottla.protocol.errors import ErrorCode, error_for

KEY = "producer-ids"
BLOCK_SIZE = 1000
# A client asks again and again for what it does not get: the log says so once in this time, and how often.
REFUSALS_LOGGED_EVERY_MS = 60_000


class ProducerIds:
    def __init__(self, runtime: Runtime, metadata: ClusterMetadata) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._next_id = 0
        self._block_end = 0
        # Gives whether there is a new block; one for all who need it.
        self._claim: asyncio.Task[bool] | None = None
        # Refusals since the last line of the log about them, and when the next one may come.
        self._refusals = 0
        self._next_refusal_line_ms = 0

    def transaction_refused(self, transactional_id: str) -> None:
        """A producer with a transactional id was refused."""
        self._refusals += 1
        now_ms = self._runtime.clock.now_ms()
        if now_ms < self._next_refusal_line_ms:
            return
        self._runtime.log.warning(
            "transactions are not supported", transactional_id=transactional_id, requests=self._refusals
        )
        self._refusals = 0
        self._next_refusal_line_ms = now_ms + REFUSALS_LOGGED_EVERY_MS

    async def take(self) -> int:
        """Raises COORDINATOR_LOAD_IN_PROGRESS while the store cannot give a block."""
        while self._next_id == self._block_end:
            if self._claim is None:
                self._claim = self._runtime.spawn(self._claim_block(), "producer ids")
            if not await self._claim:
                raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the metadata store gives no producer ids now")
        self._next_id += 1
        return self._next_id - 1

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
                    self._next_id, self._block_end = start, start + BLOCK_SIZE
                    return True
                if not isinstance(result, Conflict):
                    return False
            return False
        finally:
            self._claim = None

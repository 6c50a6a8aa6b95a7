"""Producer ids, taken from the metadata store in blocks, so that none is ever given twice (§13.3.4).

The store knows where the next block begins. What is left of a block when the broker stops is never given.

A store that is put back from an older copy would give the ids since then again. So a broker keeps in its data directory
how far ids have been claimed, by itself and, as far as it has seen, by others: its own claim is in that file before an
id of it is given. When the broker registers, the store is raised to that (docs/decisions/0038).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ottla.broker.metadata.cluster_metadata import TRIES_MAX, ClusterMetadata
from ottla.broker.runtime import Runtime, complete
from ottla.cluster.encoding import PRODUCER_IDS, next_producer_id_of, next_producer_id_value
from ottla.cluster.image import MetadataImage
from ottla.cluster.store import ABSENT, Committed, Conflict, Expect, Put, Transaction, Unavailable
from ottla.cluster.updates import ImageUpdate
from ottla.protocol.errors import ErrorCode, error_for
from ottla.storage.producer_table import GIVEN_IDS_END

BLOCK_SIZE = 1000
# With fewer ids at hand the next block is claimed: a step of a coordinator cannot wait for one.
CLAIMED_AHEAD = 100
# After a claim that has failed, as in Kafka.
RETRY_BACKOFF_MS = 50
PRODUCER_ID_MAX = (1 << 63) - 1


class NextIdFile(Protocol):
    """In the data directory: how far ids have been claimed."""

    @property
    def next_id_at_start(self) -> int:
        """Above all ids that the directory knows of."""
        ...

    def keep(self, next_id: int, done: Callable[[bool], None] = ...) -> None:
        """`done` is called with whether the file says durably that ids below `next_id` may have been given."""
        ...


class ProducerIds:
    """A publisher of the metadata: it keeps what other brokers claim."""

    def __init__(self, runtime: Runtime, metadata: ClusterMetadata, file: NextIdFile) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._file = file
        self.next_id = file.next_id_at_start
        """Above all ids that were given, as far as this broker has seen."""
        # Above those that were found in use and had not been given, by what the store said.
        self._found_in_use_until = 0
        # Invariant: none is empty.
        self._blocks: deque[range] = deque()
        self.claimed_until = 0
        """Above all ids that this broker has claimed."""
        # Gives whether there is a new block; one for all who need it.
        self._claim: asyncio.Task[bool] | None = None
        self._may_claim_from_ms = 0

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
            self._begin_claim()

    async def take(self) -> int:
        """Raises COORDINATOR_LOAD_IN_PROGRESS while the store cannot give a block."""
        while not self._blocks:
            if self._claim is None:
                self._begin_claim()
            if self._claim is None or not await self._claim:
                raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the metadata store gives no producer ids now")
        return self._take()

    def note_in_use(self, producer_id: int) -> None:
        """A coordinator has found the id in its log. One that was not given, by what the store says, was given before
        the store was put back: ids behind the last of them are given from now on, and the store learns of that."""
        is_ahead = self.next_id <= producer_id < GIVEN_IDS_END
        if is_ahead or any(producer_id in block for block in self._blocks):
            self._found_in_use_until = max(self._found_in_use_until, producer_id + 1)
            self.next_id = max(self.next_id, producer_id + 1)
            self._blocks.clear()
            if self._claim is None:
                self._begin_claim()

    def on_metadata_update(self, before: MetadataImage, update: ImageUpdate) -> None:
        next_id = update.image.next_producer_id
        if next_id != before.next_producer_id:
            self.next_id = max(self.next_id, next_id)
            self._file.keep(next_id)

    def _take(self) -> int:
        block = self._blocks.popleft()
        if len(block) > 1:
            self._blocks.appendleft(block[1:])
        return block[0]

    # Claims.

    def _begin_claim(self) -> None:
        """Not soon after one that has failed."""
        if self._runtime.clock.now_ms() >= self._may_claim_from_ms:
            self._claim = self._runtime.spawn(self._claim_block(), "producer ids")

    async def _claim_block(self) -> bool:
        is_claimed = False
        try:
            for _ in range(TRIES_MAX):
                outcome = await self._try_to_claim()
                if outcome is not None:
                    is_claimed = outcome
                    break
        finally:
            self._claim = None
            if not is_claimed:
                self._may_claim_from_ms = self._runtime.clock.now_ms() + RETRY_BACKOFF_MS
        return is_claimed

    async def _try_to_claim(self) -> bool | None:
        """Whether there is a new block; None where it is to be tried again, because another broker was quicker.

        No block begins below an id that was given, as far as this broker has seen."""
        seen = self._metadata.image.revision
        found = await self._metadata.read(PRODUCER_IDS)
        if isinstance(found, Unavailable) or found.revision < seen:
            # It has lost data. What is claimed there is forgotten when the data is given back (docs/decisions/0012).
            return False
        entry = next((entry for entry in found.entries if entry.key == PRODUCER_IDS), None)
        stored, revision = (0, ABSENT) if entry is None else (next_producer_id_of(entry), entry.revision)
        start = max(stored, self.next_id)
        if start + BLOCK_SIZE > PRODUCER_ID_MAX or not await self._keep(start + BLOCK_SIZE):
            return False
        claim = Put(PRODUCER_IDS, next_producer_id_value(start + BLOCK_SIZE))
        result = await self._metadata.commit(Transaction((Expect(PRODUCER_IDS, revision),), (claim,)))
        if isinstance(result, Conflict) or start < self._found_in_use_until:
            return None
        if not isinstance(result, Committed):
            return False
        self._blocks.append(range(start, start + BLOCK_SIZE))
        self.claimed_until = start + BLOCK_SIZE
        self.next_id = max(self.next_id, self.claimed_until)
        return True

    async def _keep(self, next_id: int) -> bool:
        """Whether the file says durably that ids below `next_id` may have been given."""
        kept: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._file.keep(next_id, partial(complete, kept))
        return await kept

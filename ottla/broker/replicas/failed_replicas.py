"""Replicas whose disk has failed: what this broker does so that the others go on without them.

A log that cannot be written or read here may be sound elsewhere. So the replica leaves the ISR, and as a leader hands
over, if another replica can take its place; no acknowledged record depends on it then.

    cannot be written    another replica leads; this one tries again to follow, until its disk works
    damaged              out of the ISR, it drops the segment with what follows, and copies both from its leader

A replica that is the last one in sync, or the only one there is, stays as it is: no other has what it has.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from ottla.broker.logging import cause_of
from ottla.broker.replicas.failed_logs import Metadata
from ottla.broker.replicas.follower_log import restart, truncate
from ottla.broker.runtime import Runtime
from ottla.cluster.alterations import leave
from ottla.cluster.controller import PartitionChange, transaction_of_leader
from ottla.cluster.store import Committed
from ottla.protocol.errors import CorruptMessage, KafkaError
from ottla.replication.partition import Partition
from ottla.storage.durability import FlushWork

RETRY_MS = 2000
RETRY_INTERVAL_MS = 60_000


class Followers(Protocol):
    """How partitions are copied from their leaders."""

    def stop_following(self, partition: Partition) -> None: ...

    def follow_again(self, partition: Partition) -> None: ...


class FailedReplicas:
    def __init__(
        self,
        runtime: Runtime,
        metadata: Metadata,
        followers: Followers,
        recovery_points_fell: Callable[[Callable[[], None] | None], None],
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._followers = followers
        self._recovery_points_fell = recovery_points_fell
        # With the offset of a read that met the damage; None where the disk takes nothing.
        self._failed: dict[Partition, int | None] = {}

    def read_failed(self, partition: Partition, offset: int, error: KafkaError) -> None:
        """A read at `offset` has ended in `error`."""
        if isinstance(error, CorruptMessage) and self._failed.get(partition) is None:
            self._log(partition, "a damaged segment was found", str(error))
            self._begin(partition, offset)

    def write_failed(self, partition: Partition) -> None:
        """Records could not be written; that has been logged."""
        if partition not in self._failed:
            self._begin(partition, None)

    def state_taken(self, partition: Partition) -> None:
        """The partition has another state by the metadata."""
        if partition in self._failed and self._is_done_without(partition):
            offset = self._failed.pop(partition)
            if offset is not None:
                self._cut_damage(partition, offset)

    def forget(self, partition: Partition) -> None:
        self._failed.pop(partition, None)

    def _begin(self, partition: Partition, offset: int | None) -> None:
        self._failed[partition] = offset
        # Not in this event: the request that has failed is answered first.
        self._runtime.spawn(self._leave(partition), "failed replica leaves the ISR")

    def _is_done_without(self, partition: Partition) -> bool:
        return not partition.is_leader and partition.local_id not in (*partition.isr, *partition.elr)

    async def _leave(self, partition: Partition) -> None:
        while partition in self._failed and self._runtime.is_serving:
            if self._is_done_without(partition):
                self.state_taken(partition)
                return
            change = self._decide(partition)
            if change is None:
                # It is needed as it is. Other replicas may have come by then; and readers who meet the same damage
                # again and again do not fill the log.
                await self._runtime.sleep(RETRY_INTERVAL_MS)
                self.forget(partition)
                return
            result = await self._metadata.commit(transaction_of_leader(change, self._metadata.image))
            if isinstance(result, Committed):
                self._log(partition, "ISR shrunk, the disk of a replica has failed", change.reason)
                return
            await self._runtime.sleep(RETRY_MS)

    def _decide(self, partition: Partition) -> PartitionChange | None:
        metadata = self._metadata
        has_lost = self._failed[partition] is not None
        try:
            return leave(
                metadata.image,
                partition.topic,
                partition.index,
                self._runtime.node_id,
                metadata.rules_of,
                has_lost=has_lost,
            )
        except KafkaError:
            # The partition is deleted.
            return None

    def _cut_damage(self, partition: Partition, offset: int) -> None:
        log, followers = partition.log, self._followers
        known_offset = min(max(offset, log.log_start_offset), log.log_end_offset)
        base_offset = log.segments[log.segments.index_of(known_offset)].base_offset
        followers.stop_following(partition)
        try:
            if base_offset > log.log_start_offset:
                # To the segment before, so that nothing of the damaged one is read.
                truncate(partition, base_offset - 1)
            else:
                restart(partition, log.log_start_offset)
        except Exception as error:
            self._log_error(partition, "a damaged segment could not be cut off", error)
            if log.failure is None:
                # It is neither read nor copied before. The disk may recover.
                self._failed[partition] = offset
                self._runtime.schedule(RETRY_MS, partial(self._cut_again, partition, offset))
            return
        self._log(partition, "a damaged segment was cut off, and is copied again", f"from {log.log_end_offset} on")
        # At once, for a replica may begin to lead before it follows again.
        self._recovery_points_fell(None)
        self._follow_when_durable(partition)

    def _cut_again(self, partition: Partition, offset: int) -> None:
        if partition in self._failed:
            # It may lead by now, or have come back into the ISR.
            self._begin(partition, offset)

    def _follow_when_durable(self, partition: Partition) -> None:
        """A power failure could bring the damage back, below a recovery point that says it need not be looked at."""
        try:
            flush = partition.log.begin_flush()
        except Exception as error:
            self._log_error(partition, "sync failed", error)
            self._follow(partition)
        else:
            self._runtime.offload(flush.run, partial(self._flushed, partition, flush))

    def _flushed(self, partition: Partition, flush: FlushWork) -> None:
        try:
            partition.log.finish_flush(flush)
        except Exception as error:
            self._log_error(partition, "sync failed", error)
        self._follow(partition)

    def _follow(self, partition: Partition) -> None:
        self._recovery_points_fell(partial(self._followers.follow_again, partition))

    def _log(self, partition: Partition, what: str, why: str) -> None:
        self._runtime.log.storage.error(what, topic=partition.topic, partition=partition.index, why=why)

    def _log_error(self, partition: Partition, what: str, error: Exception) -> None:
        self._runtime.log.storage.error(what, topic=partition.topic, partition=partition.index, **cause_of(error))

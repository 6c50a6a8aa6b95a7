"""Kafka's AlterPartition: other in-sync replicas, requested by a leader, decided on the image and committed by the
leader's own broker (§14.7).

A change that is committed comes back with the watch, as any other state, and the leader adopts it there. The leader is
answered at once where a change is refused for good. One that is in doubt, because the store did not answer or something
else has changed, is submitted again after a while, on the image of then: either it is still pending, or the leader has
adopted another state.

The changes of one event go to the store together; if one of them makes the store refuse all, they go one by one.
"""

from collections import Counter
from collections.abc import Callable

from ottla.broker.replicas.failed_logs import Metadata
from ottla.broker.runtime import Runtime
from ottla.cluster.alterations import IsrProposal, alter_isr
from ottla.cluster.controller import (
    CHANGES_PER_TRANSACTION,
    PartitionChange,
    by_topic,
    isr_change,
    transaction_of_leaders,
)
from ottla.cluster.image import BrokerState
from ottla.cluster.store import Committed, Conflict
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.replication.isr import IsrChange, IsrOutcome
from ottla.replication.partition import Partition
from ottla.replication.replica_progress import UNKNOWN_BROKER_EPOCH

RETRY_MS_FIRST = 50
RETRY_MS_MAX = 1000


class ImageRegistrations:
    """The brokers as the metadata image of this moment knows them."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def epoch_of(self, broker_id: int) -> int:
        broker = self._metadata.image.brokers.get(broker_id)
        return UNKNOWN_BROKER_EPOCH if broker is None else broker.epoch

    def may_join_isr(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self._metadata.image.brokers.get(broker_id)
        return (
            broker is not None
            and broker.state is BrokerState.ACTIVE
            and broker_epoch in (UNKNOWN_BROKER_EPOCH, broker.epoch)
        )


class _PendingIsrChange:
    """A change that its leader waits for."""

    __slots__ = ("change", "partition", "retry_ms")

    def __init__(self, partition: Partition, change: IsrChange) -> None:
        self.partition = partition
        self.change = change
        self.retry_ms = RETRY_MS_FIRST

    @property
    def is_pending(self) -> bool:
        leadership = self.partition.leadership
        return leadership is not None and leadership.isr_state.change is self.change


class AlterPartitionManager:
    def __init__(self, runtime: Runtime, metadata: Metadata, changed: Callable[[Partition], None]) -> None:
        """`changed` is called for a partition whose leader has been answered."""
        self._runtime = runtime
        self._metadata = metadata
        self._changed = changed
        self._unsent: list[_PendingIsrChange] = []
        self.committed: Counter[str] = Counter()
        """By kind: shrink, expand."""

    def submit(self, partition: Partition, change: IsrChange) -> None:
        """Sent behind the present event, with those of other leaders."""
        if not self._unsent:
            self._runtime.spawn(self._send(), "ISR changes")
        self._unsent.append(_PendingIsrChange(partition, change))

    async def _send(self) -> None:
        some, self._unsent = self._unsent[:CHANGES_PER_TRANSACTION], self._unsent[CHANGES_PER_TRANSACTION:]
        if self._unsent:
            # Not all in one step: a follower that has caught up joins the ISR of hundreds.
            self._runtime.spawn(self._send(), "ISR changes")
        await self._commit(some)

    async def _commit(self, pending: list[_PendingIsrChange]) -> None:
        decided = [(each, change) for each in pending if each.is_pending and (change := self._decide(each)) is not None]
        if not decided:
            return
        transaction = transaction_of_leaders([change for _, change in decided], self._metadata.image)
        match await self._metadata.commit(transaction):
            case Committed():
                for _, change in decided:
                    self.committed["shrink" if _shrinks(change) else "expand"] += 1
                self._log([change for _, change in decided])
            case Conflict() if len(decided) > 1:
                for each, _ in decided:
                    self._runtime.spawn(self._commit([each]), "ISR change")
            case _:
                for each, _ in decided:
                    self._retry(each)

    def _decide(self, pending: _PendingIsrChange) -> PartitionChange | None:
        """None if it is not made: then its leader was answered."""
        change, metadata = pending.change, self._metadata
        proposal = IsrProposal(
            broker_id=self._runtime.node_id,
            broker_epoch=metadata.broker_epoch,
            leader_epoch=change.leader_epoch,
            partition_epoch=change.partition_epoch,
            members=change.isr,
        )
        try:
            decided = alter_isr(metadata.image, change.topic, change.index, proposal, metadata.rules_of)
        except KafkaError as error:
            self._answer(pending, error.code)
            return None
        if decided is None:
            self._answer(pending, ErrorCode.NONE)
        return decided

    def _answer(self, pending: _PendingIsrChange, code: ErrorCode) -> None:
        partition, change = pending.partition, pending.change
        state = self._metadata.image.partition(change.topic, change.index)
        outcome = partition.isr_change_answered(
            change,
            code,
            partition_epoch=-1 if state is None else state.partition_epoch,
            isr=() if state is None else state.isr,
            elr=() if state is None else state.elr,
            now_ms=self._runtime.lag_clock.now_ms(),
        )
        self._changed(partition)
        if outcome is IsrOutcome.RESEND:
            self._retry(pending)

    def _retry(self, pending: _PendingIsrChange) -> None:
        self._runtime.spawn(self._commit_later(pending), "ISR change")

    async def _commit_later(self, pending: _PendingIsrChange) -> None:
        wait_ms = pending.retry_ms
        pending.retry_ms = min(2 * wait_ms, RETRY_MS_MAX)
        await self._runtime.sleep(wait_ms)
        await self._commit([pending])

    def _log(self, changes: list[PartitionChange]) -> None:
        """One line for all partitions of a topic that the same broker has left, or joined."""
        for is_shrink in (True, False):
            found = by_topic((each for each in changes if _shrinks(each) is is_shrink), isr_change)
            for (topic, why), partitions in found.items():
                what = "ISR shrunk" if is_shrink else "ISR expanded"
                self._runtime.log.replication.info(what, topic=topic, partitions=partitions, why=why)


def _shrinks(change: PartitionChange) -> bool:
    return len(change.after.isr) < len(change.before.isr)

"""What leaders ask for: other in-sync replicas, decided on the image and committed by the leader's own broker (§14.7).

A change that is committed comes back with the watch, as any other state, and the leader adopts it there. What was
refused for good is reported to the leader at once. What is in doubt, because the store did not answer or something else
changed at the same time, is asked again after a while, on the image of then: either the change is still wanted, or the
leader has adopted another state and does not ask for it any more.

The changes of one event go to the store together; if one of them makes the store refuse all, they go one by one.
"""

from collections.abc import Callable

from ottla.broker.replicas.failed_logs import Metadata
from ottla.broker.runtime import Runtime
from ottla.cluster.alterations import IsrProposal, alter_isr
from ottla.cluster.controller import CHANGES_PER_TRANSACTION, PartitionChange, transaction_of_leaders
from ottla.cluster.image import BrokerState
from ottla.cluster.store import CommitResult, Committed, Conflict
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


class _Wish:
    """A change that a leader waits for."""

    __slots__ = ("change", "partition", "retry_ms")

    def __init__(self, partition: Partition, change: IsrChange) -> None:
        self.partition = partition
        self.change = change
        self.retry_ms = RETRY_MS_FIRST

    @property
    def is_wanted(self) -> bool:
        leadership = self.partition.leadership
        return leadership is not None and leadership.isr_state.change is self.change


class IsrChanges:
    def __init__(self, runtime: Runtime, metadata: Metadata, changed: Callable[[Partition], None]) -> None:
        """`changed` is called for a partition whose leader has been answered."""
        self._runtime = runtime
        self._metadata = metadata
        self._changed = changed
        self._wishes: list[_Wish] = []

    def propose(self, partition: Partition, change: IsrChange) -> None:
        """Asks for what the leader wants; at the end of the event, with what others want."""
        if not self._wishes:
            self._runtime.soon(self._commit_all)
        self._wishes.append(_Wish(partition, change))

    def _commit_all(self) -> None:
        wishes, self._wishes = self._wishes[:CHANGES_PER_TRANSACTION], self._wishes[CHANGES_PER_TRANSACTION:]
        if self._wishes:
            # Not all in one go: a follower that has caught up joins the ISR of hundreds.
            self._runtime.soon(self._commit_all)
        self._commit(wishes)

    def _commit(self, wishes: list[_Wish]) -> None:
        decided = [(wish, change) for wish in wishes if wish.is_wanted and (change := self._decide(wish)) is not None]
        if not decided:
            return

        def committed(result: CommitResult) -> None:
            match result:
                case Committed():
                    for _, change in decided:
                        self._log(change)
                case Conflict() if len(decided) > 1:
                    for wish, _ in decided:
                        self._commit([wish])
                case _:
                    for wish, _ in decided:
                        self._try_later(wish)

        transaction = transaction_of_leaders([change for _, change in decided], self._metadata.image)
        self._metadata.commit(transaction, committed)

    def _decide(self, wish: _Wish) -> PartitionChange | None:
        """None if it is not to be: then the leader knows, or is asked again later."""
        change, metadata = wish.change, self._metadata
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
            self._answer(wish, error.code)
            return None
        if decided is None:
            self._answer(wish, ErrorCode.NONE)
        return decided

    def _answer(self, wish: _Wish, code: ErrorCode) -> None:
        partition, change = wish.partition, wish.change
        state = self._metadata.image.partition(change.topic, change.index)
        outcome = partition.isr_change_answered(
            change,
            code,
            partition_epoch=-1 if state is None else state.partition_epoch,
            isr=() if state is None else state.isr,
            elr=() if state is None else state.elr,
            now_ms=self._runtime.clock.now_ms(),
        )
        self._changed(partition)
        if outcome is IsrOutcome.RESEND:
            self._try_later(wish)

    def _try_later(self, wish: _Wish) -> None:
        deadline_ms = self._runtime.clock.now_ms() + wish.retry_ms
        wish.retry_ms = min(2 * wish.retry_ms, RETRY_MS_MAX)
        self._runtime.wheel.schedule(deadline_ms, lambda: self._commit([wish]))

    def _log(self, change: PartitionChange) -> None:
        self._runtime.log.info("the ISR changes", topic=change.topic, partition=change.index, why=change.reason)

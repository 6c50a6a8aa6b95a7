"""What a leader remembers of a follower's fetch session: which of its partitions may have changed.

A broker follows thousands of partitions in one session, and asks for all of them twice a second while nothing happens.
So a fetch looks only at the targets in `dirty`: those the follower has named, and those whose partition has had an
append, another high watermark, log start, ISR or leader since the follower was last sent its state. A partition knows
the sessions that watch it and marks itself dirty there (`WatchingSessions`).

    dirty ── looked at, all was sent, at the end of the log, in sync ──→ clean ── named or marked ──→ dirty

A clean target is at the leader's end, so the leader need not note its fetches one by one: see `ReplicaProgress`.
"""

from ottla.replication.fetch_session import FetchSession, FetchTarget, PartitionResult
from ottla.replication.partition import Partition
from ottla.replication.replica_progress import Contact, PartitionKey

NO_REPLICA = -1


class FollowerSession(FetchSession):
    __slots__ = ("changed", "contact", "dirty", "replica_id")

    def __init__(self) -> None:
        super().__init__()
        self.replica_id = NO_REPLICA
        self.contact = Contact()
        # In the order in which they are served.
        self.dirty: dict[PartitionKey, FetchTarget] = {}
        # What a parked fetch has to look at: there was an append, a deletion of records or another leader.
        self.changed: dict[PartitionKey, FetchTarget] = {}

    def on_listed(self, target: FetchTarget) -> None:
        self.dirty[target.key] = target

    def on_forgotten(self, target: FetchTarget) -> None:
        self.dirty.pop(target.key, None)
        self.changed.pop(target.key, None)
        self._leave(target)

    def targets_to_check(self) -> list[FetchTarget]:
        return list(self.dirty.values())

    def take_changed(self) -> dict[PartitionKey, FetchTarget]:
        changed, self.changed = self.changed, {}
        return changed

    def watch(self, target: FetchTarget, partition: Partition) -> None:
        """Learn of changes of `partition`, which is what the target means at present."""
        if target.source is not partition:
            self._leave(target)
            target.source = partition
            partition.sessions.targets[self] = target

    def mark_sent(self, target: FetchTarget, answer: PartitionResult) -> None:
        if target.key not in self.dirty:
            return
        partition = target.source
        if partition is not None and self._is_clean(target, partition, answer):
            del self.dirty[target.key]
        elif answer.records:
            self.dirty[target.key] = self.dirty.pop(target.key)

    def _is_clean(self, target: FetchTarget, partition: Partition, answer: PartitionResult) -> bool:
        """Nothing but an event in the partition makes the response to the same fetch another one."""
        return (
            not answer.error_code
            and answer.diverging_epoch is None
            and not answer.records
            and target.fetch_offset == partition.log.log_end_offset
            and target.last_sent_high_watermark == partition.high_watermark
            and target.last_sent_log_start_offset == partition.log.log_start_offset
            # Each fetch of a follower that is not in the ISR may be the one that brings it back.
            and partition.is_in_sync(self.replica_id)
        )

    def close(self) -> None:
        for target in self.targets.values():
            self._leave(target)

    def _leave(self, target: FetchTarget) -> None:
        partition, target.source = target.source, None
        if partition is not None:
            partition.sessions.targets.pop(self, None)
            partition.follower_left(self.replica_id, self.contact)

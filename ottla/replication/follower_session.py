"""What a leader remembers of a follower's fetch session: which of its partitions may have news.

A broker follows thousands of partitions in one session, and asks for all of them twice a second while nothing happens.
So a fetch looks only at the targets in `due`: those the follower has named, and those whose partition has had an
append, another high watermark, log start, ISR or leader since it was told. A partition knows the sessions that watch
it and puts itself back there (`Partition.stir_followers`).

    due ── looked at, told everything, at the end of the log, in sync ──→ quiet ── named or stirred ──→ due

A quiet target is at the leader's end, so the leader need not note its fetches one by one: see `ReplicaProgress`.
"""

from ottla.replication.fetch_session import Answer, FetchSession, FetchTarget, PartitionKey
from ottla.replication.partition import Partition
from ottla.replication.progress import Contact

NOBODY = -1


class FollowerSession(FetchSession):
    __slots__ = ("changed", "contact", "due", "replica_id")

    def __init__(self) -> None:
        super().__init__()
        self.replica_id = NOBODY
        self.contact = Contact()
        # In the order in which they are served.
        self.due: dict[PartitionKey, FetchTarget] = {}
        # What a parked fetch has to look at: there was an append, a deletion of records or another leader.
        self.changed: dict[PartitionKey, FetchTarget] = {}

    def is_listed(self, target: FetchTarget) -> None:
        self.due[target.key] = target

    def is_forgotten(self, target: FetchTarget) -> None:
        self.due.pop(target.key, None)
        self.changed.pop(target.key, None)
        self._leave(target)

    def to_look_at(self) -> list[FetchTarget]:
        return list(self.due.values())

    def take_changed(self) -> dict[PartitionKey, FetchTarget]:
        changed, self.changed = self.changed, {}
        return changed

    def watch(self, target: FetchTarget, partition: Partition) -> None:
        """Hear of the news of `partition`, which is what the target means at present."""
        if target.source is not partition:
            self._leave(target)
            target.source = partition
            partition.follower_sessions[self] = target

    def was_told(self, target: FetchTarget, answer: Answer) -> None:
        if target.key not in self.due:
            return
        partition = target.source
        if partition is not None and self._is_quiet(target, partition, answer):
            del self.due[target.key]
        elif answer.records:
            self.due[target.key] = self.due.pop(target.key)

    def _is_quiet(self, target: FetchTarget, partition: Partition, answer: Answer) -> bool:
        """Nothing but an event in the partition makes the answer to the same question another one."""
        return (
            not answer.error_code
            and answer.diverging_epoch is None
            and not answer.records
            and target.fetch_offset == partition.log.log_end_offset
            and target.told_high_watermark == partition.high_watermark
            and target.told_log_start_offset == partition.log.log_start_offset
            # Each fetch of a follower that is not in the ISR may be the one that brings it back.
            and partition.is_in_sync(self.replica_id)
        )

    def close(self) -> None:
        for target in self.targets.values():
            self._leave(target)

    def _leave(self, target: FetchTarget) -> None:
        partition, target.source = target.source, None
        if partition is not None:
            partition.follower_sessions.pop(self, None)
            partition.follower_left(self.replica_id, self.contact)

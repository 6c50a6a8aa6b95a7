"""One fetch request of a consumer: read what is there, and wait if that is too little (§15.3).

start ── other fetches have read much in this step of the loop: wait for a turn, then start
  ├───── enough, an error, or nothing to wait for ───────────────────────────→ answer
  ├───── a partition is not in the page cache: read it in a thread, then ────→ answer
  └───── too little: watch all partitions
           └── enough was appended, leadership changed, or max wait ── read ─→ answer

While it waits it remembers how much it could read of each partition, so that an append to one of thousands costs it a
look at that one.
"""

from collections.abc import Hashable, Iterable
from itertools import starmap
from typing import Any

from ottla.broker.replicas.fetch_responses import (
    ColdRead,
    FetchOperation,
    describe,
    find_partition,
    list_aborted,
)
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import RequestContext
from ottla.broker.server.turns import FETCH_BYTES_MAX, READ_BYTES_PER_STEP, ReadTurns
from ottla.protocol.errors import KafkaError, UnknownTopicId, UnknownTopicOrPartition
from ottla.protocol.messages.fetch import EpochEndOffset, FetchResponse
from ottla.replication.fetch_session import FetchContext, FetchTarget
from ottla.replication.partition import READ_COMMITTED, Partition
from ottla.storage.segment_reader import WouldBlock

# Before v11 a client knows nothing of reading from followers.
FOLLOWERS_SINCE = 11


class _AwaitedPartition:
    """A partition that is waited for: leader and leader epoch when it was read, and what could be read now."""

    __slots__ = ("leader_epoch", "leader_id", "readable_bytes", "target")

    def __init__(self, leader_id: int, leader_epoch: int, target: FetchTarget) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.target = target
        self.readable_bytes = 0


class DelayedFetch(FetchOperation):
    # As in Kafka. A consumer whose metadata is old would otherwise ask again and again until it has newer.
    _waits_despite = (UnknownTopicId, UnknownTopicOrPartition)

    __slots__ = ("_follower_will_do", "_isolation_level", "_rack", "_readable_bytes", "_turns", "_watched", "_watches")

    _watched: list[tuple[Partition, int, int, FetchTarget]]
    """The partitions that are waited for, with leader and leader epoch when they were read."""
    _watches: dict[Partition, _AwaitedPartition]
    """The same while it waits."""
    _readable_bytes: int
    """Of all of them, while it waits."""

    def __init__(
        self,
        replicas: ReplicaManager,
        runtime: Runtime,
        context: RequestContext,
        fetch: FetchContext,
        turns: ReadTurns,
        deadline_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        rack: str,
    ) -> None:
        """`rack` is where the consumer is; empty, or with no selector set, no replica is nearer than the leader."""
        if max_bytes > FETCH_BYTES_MAX:
            max_bytes = FETCH_BYTES_MAX
        lists_aborted = isolation_level == READ_COMMITTED
        super().__init__(replicas, runtime, context, fetch, deadline_ms, min_bytes, max_bytes, lists_aborted)
        self._turns = turns
        self._isolation_level = isolation_level
        self._follower_will_do = context.api_version >= FOLLOWERS_SINCE
        self._rack = rack

    def start(self) -> FetchResponse | None:
        """The response, or None after parking the request."""
        if not self._turns.may_read:
            self._context.park()
            self._turns.wait(self._start_in_turn)
            return None
        self._read_all()
        if self._is_ready():
            return self._response()
        self._context.park()
        self._wait()
        return None

    def _start_in_turn(self) -> None:
        if self._context.connection.is_closed:
            self._fetch.abandon()
            return
        # Others wait as well: a response that takes long to read would itself be the delay.
        self._max_bytes = min(self._max_bytes, READ_BYTES_PER_STEP)
        self._read_all()
        if self._is_ready():
            self._context.complete(self._response())
        else:
            self._wait()

    def _is_ready(self) -> bool:
        if self._cold:
            return False
        return self._ends_wait or self._bytes_read >= self._min_bytes or not self._watched

    # Waiting.

    def _wait(self) -> None:
        """For the disk, or for more records."""
        if self._cold:
            self._read_cold()
            return
        purgatory = self._replicas.delayed_fetch
        self._context.on_disconnect = lambda: purgatory.cancel(self)
        self._begin_to_watch()
        self._watch(self._watched)
        # They are made again when the wait is over.
        self._watched, self._answers = [], []
        purgatory.watch(self, self._watches)

    def _begin_to_watch(self) -> None:
        self._watches = {}
        self._readable_bytes = 0

    def _watch(self, watched: Iterable[tuple[Partition, int, int, FetchTarget]]) -> None:
        self._watches.update((each[0], _AwaitedPartition(*each[1:])) for each in watched)

    def try_complete(self) -> bool:
        return any(starmap(self._must_end, self._watches.items())) and self.force_complete()

    def try_complete_for(self, key: Hashable) -> bool:
        assert isinstance(key, Partition), "a consumer's fetch waits for partitions"
        return self._must_end(key, self._watches[key]) and self.force_complete()

    def _must_end(self, partition: Partition, watch: "_AwaitedPartition") -> bool:
        """Counts what can be read of the partition now; says whether the wait is over (§15.3.1)."""
        if partition.leader_epoch != watch.leader_epoch or partition.leader_id != watch.leader_id:
            return True
        target = watch.target
        try:
            bound = partition.upper_bound(self._isolation_level)
            if bound <= target.fetch_offset and not watch.readable_bytes:
                return bound < target.fetch_offset
            if bound < target.fetch_offset or partition.log.is_in_later_segment(bound, target.fetch_offset):
                return True
            readable_bytes = min(partition.log.bytes_between(target.fetch_offset, bound), target.max_bytes)
        except KafkaError:
            # The response says what is wrong.
            return True
        self._readable_bytes += readable_bytes - watch.readable_bytes
        watch.readable_bytes = readable_bytes
        return self._readable_bytes >= self._min_bytes

    def on_complete(self) -> None:
        """A roll of the log ends the wait of all that read the segment before, perhaps thousands."""
        if self._turns.may_read:
            super().on_complete()
        else:
            self._turns.wait(self._finish_in_turn)

    def _finish_in_turn(self) -> None:
        if self._context.connection.is_closed:
            self._fetch.abandon()
        else:
            super().on_complete()

    # Reading.

    def _read_all(self) -> None:
        self._watched = []
        room, targets = self._begin_reading(), self._fetch.targets
        self._bytes_to_read = room - self._read_some(targets, room)
        self._turns.count_read(len(targets), self._bytes_read)

    def _read(self, target: FetchTarget, answer: Any, room: int) -> int:
        partition = find_partition(self._replicas, target)
        partition.check_reader(target.current_leader_epoch, follower_will_do=self._follower_will_do)
        describe(partition, answer)
        if self._rack and self._is_sent_elsewhere(partition, target, answer):
            return 0
        if target.last_fetched_epoch >= 0 and self._diverges(target, partition, answer):
            return 0
        self._watched.append((partition, partition.leader_id, partition.leader_epoch, target))
        at_least_one_batch = self._bytes_read == 0 and not self._cold
        wanted = target.max_bytes
        if wanted > room:
            wanted = room
        if wanted <= 0 and not at_least_one_batch:
            partition.reads.check_readable(target.fetch_offset)
            return 0
        try:
            # It checks whether the offset is one that can be read.
            result = partition.log.read(
                target.fetch_offset, wanted, partition.upper_bound(self._isolation_level), at_least_one_batch
            )
        except WouldBlock as read:
            if self._lists_aborted:
                # Now: the segments may be deleted or compacted before the records have been read.
                list_aborted(partition, target, answer, read.end_offset)
            self._cold.append(ColdRead(target, answer, read))
            return wanted
        answer.records = result.records
        size = len(result.records)
        if size and self._lists_aborted:
            list_aborted(partition, target, answer, result.end_offset)
        self._bytes_read += size
        return size

    def _is_sent_elsewhere(self, partition: Partition, target: FetchTarget, answer: Any) -> bool:
        """Whether another replica is nearer to the consumer (KIP-392)."""
        leadership = partition.leadership
        if leadership is None or not leadership.followers:
            return False
        nearest = leadership.nearest_replica(target.fetch_offset, self._rack, self._rack_of)
        if nearest == partition.local_id:
            return False
        answer.preferred_read_replica = nearest
        self._ends_wait = True
        return True

    def _rack_of(self, broker_id: int) -> str | None:
        broker = self._replicas.image.brokers.get(broker_id)
        return broker.rack if broker is not None and broker.is_live else None

    def _diverges(self, target: FetchTarget, partition: Partition, answer: Any) -> bool:
        """Whether the reader has records of an epoch that ended earlier than it believes (KIP-595)."""
        diverging = partition.reads.diverging_epoch(target.last_fetched_epoch, target.fetch_offset)
        if diverging is None:
            return False
        epoch, end_offset = diverging
        answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        # As in Kafka: null, for nothing was read, whatever the isolation level.
        answer.aborted_transactions = None
        self._ends_wait = True
        return True

"""One fetch request of a follower: what it has is noted, and it gets what it lacks, up to the end of the log (§14.1).

Only targets that may have changed are looked at (`FollowerSession`), and while there is nothing to send, the request
waits for its session, not for each of its partitions. What the follower has is noted once, at the first read, and only
if that succeeds (§14.1.4); the high watermark is sent as it is after that. While the leader's quota is exceeded,
throttled replicas that are not in sync get no records, and do not end the wait.
"""

from collections.abc import Hashable
from typing import Any

from ottla.broker.replicas.fetch_responses import (
    ColdRead,
    FetchOperation,
    describe,
    describe_failure,
    find_partition,
)
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.replicas.shared_reads import read_for_follower
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.fetch import EpochEndOffset, FetchResponse
from ottla.replication.fetch_session import FetchContext, FetchTarget
from ottla.replication.follower_session import FollowerSession
from ottla.replication.partition import Partition
from ottla.replication.replica_progress import PartitionKey
from ottla.replication.replica_reads import FollowerFetch
from ottla.storage.segment_reader import WouldBlock


class FollowerColdRead(ColdRead):
    """One whose fetch is noted when it has been read."""

    __slots__ = ("fetch", "leader_end_offset", "partition")

    def __init__(
        self, target: FetchTarget, answer: Any, read: WouldBlock, partition: Partition, fetch: FollowerFetch
    ) -> None:
        super().__init__(target, answer, read)
        self.partition = partition
        self.fetch = fetch
        self.leader_end_offset = partition.log.log_end_offset


class DelayedFollowerFetch(FetchOperation):
    is_of_follower = True

    __slots__ = ("_broker_epoch", "_is_noted", "_readable", "_session", "_throttles")

    def __init__(
        self,
        replicas: ReplicaManager,
        runtime: Runtime,
        context: RequestContext,
        fetch: FetchContext,
        *,
        replica_id: int,
        broker_epoch: int,
        deadline_ms: int,
        min_bytes: int,
        max_bytes: int,
    ) -> None:
        super().__init__(
            replicas,
            runtime,
            context,
            fetch,
            deadline_ms=deadline_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            lists_aborted=True,
        )
        session = fetch.session
        assert isinstance(session, FollowerSession), "a follower fetches in a session of its kind"
        session.replica_id = replica_id
        self._session = session
        # A follower that has all waits without having read.
        self._begin_reading()
        self._broker_epoch = broker_epoch
        self._is_noted = False
        self._throttles = replicas.throttles
        # Bytes that could be read of partitions, while that is too little.
        self._readable: dict[PartitionKey, int] = {}

    def start(self) -> FetchResponse | None:
        """The response, or None after parking the request."""
        context = self._context
        if self._min_bytes > 0 and self._has_all():
            self._noted()
        else:
            self._read_all()
            if not self._cold:
                self._noted()
                if self._ends_wait or self._bytes_read >= self._min_bytes:
                    return self._response()
        # Requests that wait for what this follower has by now end before the follower is seen to wait.
        self._runtime.end_event()
        context.park()
        context.on_disconnect = self._give_up
        if self._cold:
            self._read_cold()
        else:
            self._replicas.delayed_fetch.watch(self, (self._session,))
        return None

    def _has_all(self) -> bool:
        """Whether the follower is at the end of every log that it asks for, which is noted then. That is how nearly all
        fetches begin; `_read_all` would come to the same."""
        fetches: list[tuple[Partition, FollowerFetch]] = []
        for target in self._fetch.targets:
            partition = target.source
            if partition is None:
                return False
            fetch = self._follower_fetch(target)
            if not partition.has_nothing_for(fetch):
                return False
            fetches.append((partition, fetch))
        for partition, fetch in fetches:
            self._note(partition, fetch, fetch.fetch_offset)
        return True

    def _follower_fetch(self, target: FetchTarget) -> FollowerFetch:
        return FollowerFetch(
            self._session.replica_id,
            self._broker_epoch,
            target.fetch_offset,
            target.log_start_offset,
            target.current_leader_epoch,
            target.last_fetched_epoch,
        )

    def _noted(self) -> None:
        self._is_noted = True
        self._session.contact.last_fetch_ms = self._runtime.lag_clock.now_ms()

    def _give_up(self) -> None:
        self._replicas.delayed_fetch.cancel(self)
        self._fetch.abandon()

    # Waiting.

    def try_complete(self) -> bool:
        self._session.changed.clear()
        return any(map(self._must_end, self._session.dirty.values())) and self.force_complete()

    def try_complete_for(self, key: Hashable) -> bool:  # noqa: ARG002 - the session, which knows what has changed
        return any(map(self._must_end, self._session.take_changed().values())) and self.force_complete()

    def _must_end(self, target: FetchTarget) -> bool:
        """Counts what the follower could get of the partition now; says whether the wait is over."""
        partition = target.source
        if partition is None or not partition.is_leader or partition.leader_epoch != target.current_leader_epoch:
            return True
        log = partition.log
        if target.known_log_start_offset < log.log_start_offset:
            return True
        end_offset = log.log_end_offset
        if target.fetch_offset == end_offset or (self._throttles.leader.is_active and self._is_left_out(partition)):
            return False
        if self._min_bytes <= 1 or log.is_in_later_segment(end_offset, target.fetch_offset):
            return True
        try:
            readable_bytes = log.bytes_between(target.fetch_offset, end_offset)
        except KafkaError:
            # The response says what is wrong.
            return True
        self._readable[target.key] = min(readable_bytes, target.max_bytes)
        return sum(self._readable.values()) >= self._min_bytes

    def on_complete(self) -> None:
        self._fetch.refresh_targets()
        super().on_complete()

    # Reading.

    def _read(self, target: FetchTarget, answer: Any, room: int) -> int:
        partition = find_partition(self._replicas, target)
        self._session.watch(target, partition)
        fetch = self._follower_fetch(target)
        end_offset = partition.log.log_end_offset
        wanted = min(target.max_bytes, room)
        at_least_one_batch = self._bytes_read == 0 and not self._cold
        if self._throttles.leader.is_active and self._is_left_out(partition):
            wanted, at_least_one_batch = 0, False
        try:
            read = read_for_follower(
                partition,
                fetch,
                wanted,
                at_least_one_batch=at_least_one_batch,
                shared=self._replicas.shared_reads,
            )
        except WouldBlock as blocked:
            describe(partition, answer)
            self._cold.append(FollowerColdRead(target, answer, blocked, partition, fetch))
            return wanted
        if read.diverging is not None:
            self._ends_wait = True
            describe(partition, answer)
            epoch, end_offset = read.diverging
            answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
            return 0
        if not self._is_noted:
            self._note(partition, fetch, end_offset)
        describe(partition, answer)
        answer.records = read.records
        size = read.size_bytes
        self._bytes_read += size
        return size

    def _is_left_out(self, partition: Partition) -> bool:
        return self._throttles.leaves_out(partition, self._session.replica_id)

    def _note(self, partition: Partition, fetch: FollowerFetch, leader_end_offset: int) -> None:
        now_ms = self._runtime.lag_clock.now_ms()
        noted = partition.note_follower_fetch(fetch, leader_end_offset, now_ms, self._session.contact)
        self._replicas.follower_noted(partition, noted)

    def _cold_is_read(self) -> None:
        for read in self._cold:
            assert isinstance(read, FollowerColdRead), "a follower's reads are noted"
            if read.error is None:
                try:
                    if not self._is_noted:
                        self._note(read.partition, read.fetch, read.leader_end_offset)
                    describe(read.partition, read.answer)
                except KafkaError as error:
                    # It has resigned since.
                    read.answer.records = b""
                    describe_failure(self._replicas, read.target, read.answer, error)
        self._noted()
        super()._cold_is_read()

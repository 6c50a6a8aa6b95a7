"""Appends to the partitions that this broker leads, and everyone who waits for something to happen in a partition.

Appends are queued in the logs while the requests of a read event are handled. `flush_and_notify`, which runs at the
end of every event, writes them with one system call per partition, raises the high watermarks, and wakes who
waits: parked fetches, produce requests, group coordinators, followers. A write that fails changes the answers of the
requests it belonged to, which have not been sent yet.

Whoever changes a partition in another way, by metadata, by a fetch of a follower, by the end of a sync, says so with
`tell`; who waits is woken at the end of that event too, when everything is consistent again.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ottla.broker.replicas.disk_sync import DiskSync
from ottla.broker.runtime import Runtime
from ottla.protocol.errors import ErrorCode, KafkaError, error_for
from ottla.replication.leading import ACKS_ALL
from ottla.replication.partition import Partition
from ottla.replication.shared_reads import SharedReads
from ottla.storage.log import AppendInfo, Origin
from ottla.timer.purgatory import Purgatory

if TYPE_CHECKING:
    from ottla.replication.follower_session import FollowerSession

# (where the records are, None) once they are below the high watermark, or (None, why not).
AppendDone = Callable[[AppendInfo | None, KafkaError | None], None]


# Of all parked fetches together: some 40 MiB. Beyond it fetches wait for less time than they ask for.
PARKED_PARTITIONS_MAX = 100_000


class Appends:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        # Partitions with queued appends, and the answers that a failing write would change.
        self._unwritten: dict[Partition, list[AppendAnswer]] = {}
        self._own_appends: list[_OwnAppend] = []
        # Written, and waiting for the high watermark.
        self._own_waiting: dict[Partition, list[_OwnAppend]] = {}
        # Whose waiters have to look again, and sessions of followers for which there may be records.
        self._news: dict[Partition, None] = {}
        self._awake: dict[FollowerSession, None] = {}
        self._disk_sync = DiskSync(runtime, self.synced, lambda partition: self.write_failed(partition))
        self.shared_reads = SharedReads()
        self.delayed_produce = Purgatory("produce", runtime.wheel)
        # Consumers wait for partitions, followers for their session.
        self.delayed_fetch = Purgatory("fetch", runtime.wheel, watched_max=PARKED_PARTITIONS_MAX)
        self.delayed_delete_records = Purgatory("delete records", runtime.wheel)

    def append(
        self,
        partition: Partition,
        records: memoryview,
        acks: int,
        answer: "AppendAnswer",
        *,
        origin: Origin = Origin.CLIENT,
        zstd_allowed: bool = True,
    ) -> AppendInfo:
        """Queues one batch; `flush_and_notify` writes it, and should that fail, tells the answer.

        Raises KafkaError, and then nothing is queued."""
        wall_ms = self._runtime.clock.wall_ms()
        info = partition.append(records, acks=acks, wall_ms=wall_ms, origin=origin, zstd_allowed=zstd_allowed)
        answers = self._unwritten.get(partition)
        if answers is not None:
            answers.append(answer)
        elif not info.duplicate:
            self._unwritten[partition] = [answer]
        return info

    def append_own(self, partition: Partition, records: memoryview, done: AppendDone) -> None:
        outcome = _OwnAppend(partition, done)
        try:
            outcome.info = self.append(partition, records, ACKS_ALL, outcome, origin=Origin.COORDINATOR)
        except KafkaError as error:
            outcome.fail(error)
        self._own_appends.append(outcome)

    def tell(self, partition: Partition) -> None:
        """Something has happened in the partition that somebody may wait for."""
        self._news[partition] = None

    def high_watermark_rose(self, partition: Partition) -> None:
        """By an append, or by a follower's fetch."""
        self.shared_reads.recent.passed(partition.log, partition.high_watermark)
        self.tell(partition)

    def wake_followers(self, partition: Partition) -> None:
        """There is something for followers that they should not wait for."""
        for session, target in partition.follower_sessions.items():
            session.changed[target.key] = target
            self._awake[session] = None

    def write_failed(self, partition: Partition) -> None:
        """Records of a partition that is led here could not be written."""

    def flush_and_notify(self) -> None:
        """Writes what was appended since the last call, then tells everyone it concerns."""
        while self._unwritten or self._own_appends or self._news or self._awake:
            unwritten, self._unwritten = self._unwritten, {}
            own_appends, self._own_appends = self._own_appends, []
            for partition, answers in unwritten.items():
                self._write(partition, answers)
            news, self._news = self._news, {}
            awake, self._awake = self._awake, {}
            guard = self._runtime.guard
            for outcome in own_appends:
                guard(self._settle_own, outcome)
            for partition in news:
                guard(self._look_again, partition)
            for session in awake:
                guard(self.delayed_fetch.check_and_complete, session)

    def _write(self, partition: Partition, answers: "list[AppendAnswer]") -> None:
        log = partition.log
        begin = log.log_end_offset
        batches = log.pending_records if partition.follower_sessions else ()
        try:
            log.write_pending(now_wall_ms=self._runtime.clock.wall_ms())
        except KafkaError as error:
            self._runtime.log.error("append failed", topic=partition.topic, partition=partition.index, why=str(error))
            for answer in answers:
                answer.error_code = int(error.code)
                answer.error_message = str(error)
                answer.base_offset = -1
            self.tell(partition)
            self.write_failed(partition)
        else:
            if batches:
                self.shared_reads.recent.appended(log, begin, batches)
        if partition.written(self._runtime.clock.now_ms()):
            self.high_watermark_rose(partition)
        if partition.follower_sessions:
            self.wake_followers(partition)
        if log.config.waits_for_sync:
            self._disk_sync.written(partition)

    def _look_again(self, partition: Partition) -> None:
        if self._own_waiting:
            for outcome in self._own_waiting.pop(partition, ()):
                self._runtime.guard(self._settle_own, outcome)
        self.delayed_produce.check_and_complete(partition)
        self.delayed_delete_records.check_and_complete(partition)
        self.delayed_fetch.check_and_complete(partition)

    def _settle_own(self, outcome: "_OwnAppend") -> None:
        if not outcome.tell_if_known():
            self._own_waiting.setdefault(outcome.partition, []).append(outcome)

    def synced(self, partition: Partition) -> None:
        """Records of the partition have reached the disk, or failed to."""
        self.tell(partition)

    def sync_if_overdue(self, partition: Partition) -> None:
        """Makes complete segments durable (§16.2.3), so that a start after a crash need not read them again."""
        if partition.log.failure is None and partition.log.is_flush_overdue(self._runtime.clock.wall_ms()):
            self._disk_sync.request(partition)


class AppendAnswer(Protocol):
    """What becomes of an append: the answer for a partition in a produce response, or a note of the broker's own."""

    error_code: int
    error_message: str | None
    base_offset: int


class _OwnAppend:
    """An append of the broker's own, and who wants to know."""

    __slots__ = ("_done", "_leader_epoch", "base_offset", "error_code", "error_message", "info", "partition")

    def __init__(self, partition: Partition, done: AppendDone) -> None:
        self.partition = partition
        self.info: AppendInfo | None = None
        self.base_offset = 0
        self.error_code = 0
        self.error_message: str | None = None
        self._done = done
        self._leader_epoch = partition.leader_epoch

    def fail(self, error: KafkaError) -> None:
        self.error_code = int(error.code)
        self.error_message = str(error)

    def tell_if_known(self) -> bool:
        """Tells what has become of it, if that is certain by now (§15.2.3)."""
        if not self.error_code:
            assert self.info is not None, "what did not fail was appended"
            code = self.partition.acknowledgement(self.info.last_offset, self._leader_epoch)
            if code is None:
                return False
            self.error_code = int(code)
        if self.error_code:
            self._done(None, error_for(ErrorCode(self.error_code), self.error_message or ""))
        else:
            self._done(self.info, None)
        return True

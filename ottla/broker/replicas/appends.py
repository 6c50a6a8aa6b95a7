"""Appends to the partitions that this broker leads, and all that waits for a change of a partition.

Appends are queued in the logs while the requests of a read event are handled. `flush_and_notify`, which runs at the
end of every event, writes them with one system call per partition, raises the high watermarks, and checks what waits:
parked fetches, produce requests, appends of coordinators, fetch sessions of followers. A write that fails changes the
answers of the requests it belonged to, which have not been sent yet.

A partition also changes by metadata, by a fetch of a follower, by the end of a sync. The part that makes such a change
calls `mark_changed`; what waits is checked at the end of that event too, when everything is consistent again.
"""

from collections.abc import Callable
from typing import Protocol

from ottla.broker.histogram import SUM_NS, UNIT_BITS, Histogram
from ottla.broker.replicas.disk_sync import DiskSync
from ottla.broker.replicas.shared_reads import SharedReads
from ottla.broker.runtime import Runtime
from ottla.protocol.errors import ErrorCode, KafkaError, error_for
from ottla.replication.partition import ACKS_ALL, Partition
from ottla.replication.replica_progress import WatchingSession
from ottla.storage.log import AppendInfo, Origin, VerificationGuard
from ottla.timer.purgatory import Purgatory

# (where the records are, None) once they are below the high watermark, or (None, why not).
AppendDone = Callable[[AppendInfo | None, KafkaError | None], None]


# Of all parked fetches together: some 40 MiB. Beyond it fetches wait for less time than they ask for.
PARKED_PARTITIONS_MAX = 100_000


class Appends:
    def __init__(self, runtime: Runtime, disk_sync: DiskSync, write_failed: Callable[[Partition], None]) -> None:
        """`write_failed` is called with a partition whose records could not be written."""
        self._runtime = runtime
        self._clock = runtime.clock
        self._broker_clock = runtime.broker_clock
        # None where it is the clock: the end of a write is known by that.
        self._other_lag_clock = None if runtime.lag_clock is runtime.clock else runtime.lag_clock
        self._disk_sync = disk_sync
        self._write_failed = write_failed
        # Partitions with queued appends, and the answers that a failing write would change.
        self._unwritten: dict[Partition, list[AppendAnswer]] = {}
        self._own_appends: list[_OwnAppend] = []
        # Written, and waiting for the high watermark.
        self._own_waiting: dict[Partition, list[_OwnAppend]] = {}
        # Partitions whose waiters are to be checked, and sessions of followers for which there may be records.
        self._changes: dict[Partition, None] = {}
        self._sessions_to_wake: dict[WatchingSession, None] = {}
        # One write of a partition has all that was appended to it in an event.
        self.write_times = Histogram()
        self._write_times = self.write_times.counts
        self.shared_reads = SharedReads()
        self._recent = self.shared_reads.recent
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
        zstd_allowed: bool = True,
        guard: VerificationGuard | None = None,
        origin: Origin = Origin.CLIENT,
    ) -> AppendInfo:
        """Queues one batch; `flush_and_notify` writes it, and puts the error into the answer if that fails.

        Raises KafkaError, and then nothing is queued."""
        info = partition.append(records, acks, self._broker_clock.wall_ms(), origin, zstd_allowed, guard)
        answers = self._unwritten.get(partition)
        if answers is not None:
            answers.append(answer)
        if not info.duplicate:
            if answers is None:
                self._unwritten[partition] = [answer]
            traffic = partition.traffic
            traffic.records_in += info.last_offset - info.base_offset + 1
            traffic.bytes_in += len(records)
        return info

    def append_own(
        self,
        partition: Partition,
        records: memoryview,
        done: AppendDone,
        guard: VerificationGuard | None = None,
        origin: Origin = Origin.COORDINATOR,
    ) -> None:
        """Queues a batch of the broker's own. `done` is called once, later: when the high watermark has passed it."""
        outcome = _OwnAppend(partition, done)
        try:
            outcome.info = self.append(partition, records, ACKS_ALL, outcome, origin=origin, guard=guard)
        except KafkaError as error:
            outcome.fail(error)
        self._own_appends.append(outcome)

    def mark_changed(self, partition: Partition) -> None:
        """Requests and appends that wait for the partition are checked at the end of this event."""
        self._changes[partition] = None

    def high_watermark_rose(self, partition: Partition) -> None:
        """By an append, or by a follower's fetch."""
        self._recent.passed(partition.log, partition.high_watermark)
        self._changes[partition] = None

    def wake_followers(self, partition: Partition) -> None:
        """Followers get the answers to their fetches at the end of this event."""
        for session, target in partition.sessions.targets.items():
            session.changed[target.key] = target
            self._sessions_to_wake[session] = None

    def flush_and_notify(self) -> None:
        """Writes what was appended since the last call, then checks all that waits for a change of these partitions."""
        while self._unwritten or self._own_appends or self._changes or self._sessions_to_wake:
            unwritten, self._unwritten = self._unwritten, {}
            own_appends, self._own_appends = self._own_appends, []
            for partition, answers in unwritten.items():
                try:
                    self._write(partition, answers)
                except Exception as error:
                    # The records for the other partitions are written all the same.
                    self._write_failed_unexpectedly(partition, answers, error)
            changes, self._changes = self._changes, {}
            sessions, self._sessions_to_wake = self._sessions_to_wake, {}
            guard = self._runtime.guard
            for outcome in own_appends:
                waiting = self._own_waiting.get(outcome.partition)
                if waiting is None or outcome.error_code:
                    guard(self._complete_or_wait, outcome)
                else:
                    # Outcomes come in the order of the log: the marker of a transaction after what it ends.
                    waiting.append(outcome)
            for partition in changes:
                if self._has_waiters(partition):
                    guard(self._check_waiters, partition)
            for session in sessions:
                guard(self.delayed_fetch.check_and_complete, session)

    def _write(self, partition: Partition, answers: "list[AppendAnswer]") -> None:
        log = partition.log
        followers = partition.sessions.targets
        batches, begin = (log.pending_records, log.log_end_offset) if followers else ((), 0)
        clock, times, waits_for_sync = self._clock, self._write_times, log.waits_for_sync
        began_ns = clock.now_ns()
        try:
            # Only when to sync depends on the time.
            log.write_pending(self._broker_clock.wall_ms() if waits_for_sync else 0)
        except KafkaError as error:
            self._runtime.log.storage.error(
                "append failed", topic=partition.topic, partition=partition.index, why=str(error)
            )
            _fail(answers, error.code, str(error))
            self.mark_changed(partition)
            self._write_failed(partition)
        else:
            if batches:
                self.shared_reads.recent.appended(log, begin, batches)
        ended_ns = clock.now_ns()
        duration_ns = ended_ns - began_ns
        times[(duration_ns >> UNIT_BITS).bit_length()] += 1
        times[SUM_NS] += duration_ns
        lag_clock = self._other_lag_clock
        if partition.written(ended_ns // 1_000_000 if lag_clock is None else lag_clock.now_ms()):
            self.high_watermark_rose(partition)
        if followers:
            self.wake_followers(partition)
        if waits_for_sync:
            self._disk_sync.written(partition)

    def _write_failed_unexpectedly(self, partition: Partition, answers: "list[AppendAnswer]", error: Exception) -> None:
        self._runtime.log.storage.error(
            "append failed", topic=partition.topic, partition=partition.index, exc_info=error
        )
        _fail(answers, ErrorCode.UNKNOWN_SERVER_ERROR, "the records could not be written")
        self.mark_changed(partition)

    def _has_waiters(self, partition: Partition) -> bool:
        return (
            partition in self.delayed_fetch.keys
            or partition in self.delayed_produce.keys
            or partition in self._own_waiting
            or partition in self.delayed_delete_records.keys
        )

    def _check_waiters(self, partition: Partition) -> None:
        if self._own_waiting:
            for outcome in self._own_waiting.pop(partition, ()):
                self._runtime.guard(self._complete_or_wait, outcome)
        self.delayed_produce.check_and_complete(partition)
        self.delayed_delete_records.check_and_complete(partition)
        self.delayed_fetch.check_and_complete(partition)

    def _complete_or_wait(self, outcome: "_OwnAppend") -> None:
        if not outcome.complete_if_known():
            self._own_waiting.setdefault(outcome.partition, []).append(outcome)


def _fail(answers: "list[AppendAnswer]", code: ErrorCode, why: str) -> None:
    for answer in answers:
        answer.error_code = int(code)
        answer.error_message = why
        answer.base_offset = -1


def outcome_of_append(
    partition: Partition, info: AppendInfo, leader_epoch: int, *, needs_replicas: bool
) -> ErrorCode | None:
    """The answer to an append of `leader_epoch`; None while it waits: for replicas (§15.2.3), or for the disk where
    the topic asks for that (`flush.messages`, `flush.ms`)."""
    log = partition.log
    if log.failure is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if needs_replicas:
        code = partition.acknowledgement(info.last_offset, leader_epoch)
        if code is not ErrorCode.NONE:
            return code
    elif not partition.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return None if log.flushed_offset <= info.last_offset < log.sync_required_offset else ErrorCode.NONE


class AppendAnswer(Protocol):
    """The result of an append: the answer for a partition in a produce response, or an `_OwnAppend`."""

    error_code: int
    error_message: str | None
    base_offset: int


class _OwnAppend:
    """An append of the broker's own: of a coordinator, of the publisher of events."""

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

    def complete_if_known(self) -> bool:
        """Calls `done` if the outcome is certain by now; says whether it is."""
        if not self.error_code:
            assert self.info is not None, "what did not fail was appended"
            code = outcome_of_append(self.partition, self.info, self._leader_epoch, needs_replicas=True)
            if code is None:
                return False
            # The high watermark has passed the records. That fewer replicas are in sync by now is for producers to
            # know: a coordinator or a marker whose record is committed must not take it for one in doubt.
            if code is not ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
                self.error_code = int(code)
        if self.error_code:
            self._done(None, error_for(ErrorCode(self.error_code), self.error_message or ""))
        else:
            self._done(self.info, None)
        return True

"""What a broker does by itself from time to time: retention, removing files, forgetting producers, checkpoints; and it
starts the cleaner.

Each job is decided on the loop, for a few logs in each step; the part that only touches files runs in a thread. A log
that fails does not keep the others from being looked after.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from ottla.broker.logging import cause_of
from ottla.broker.runtime import Runtime
from ottla.broker.upkeep.checkpoint_writer import RecoveryCheckpoints
from ottla.broker.upkeep.log_cleaner import Cleaner
from ottla.broker.upkeep.log_rounds import HeldPartitions, LogRounds
from ottla.protocol.errors import KafkaError
from ottla.replication.partition import Partition
from ottla.storage.log_directory import LogDirectory
from ottla.storage.segment_reader import BUFFERS
from ottla.timer.clock import TimerKind
from ottla.timer.wheel import TimerEntry

# Files scheduled for deletion are looked for this often; they wait for `file.delete.delay.ms` anyway.
DELETION_INTERVAL_MS = 10_000
# Complete segments are looked for this often: what they delay is only how much is read again after a crash. And
# checkpoints that a disk has refused, for which followers wait less than `replica.lag.time.max.ms`.
SYNC_INTERVAL_MS = 10_000
# A buffer that nothing has needed for so long is given back; having another one costs the kernel some 200 µs.
BUFFERS_INTERVAL_MS = 10_000


class MaintainedReplicas(HeldPartitions, Protocol):
    """The partitions of this broker, and what is done for them from time to time."""

    def shrink_isr(self, partition: Partition) -> None: ...

    def sync_if_overdue(self, partition: Partition) -> None: ...


class LogManager:
    def __init__(
        self,
        runtime: Runtime,
        directory: "LogDirectory",
        replicas: MaintainedReplicas,
        checkpoints: RecoveryCheckpoints,
        release_buffers: Callable[[], None],
    ) -> None:
        """`release_buffers` gives back the receive buffers that no connection has needed for some time."""
        self._runtime = runtime
        self._directory = directory
        self._replicas = replicas
        self._release_receive_buffers = release_buffers
        self._timers: dict[str, TimerEntry] = {}
        self._rounds: list[LogRounds] = []
        self._checkpoints = checkpoints
        self.retention_deleted_bytes = 0
        """By retention, since the start."""
        self._cleaner = Cleaner(runtime, replicas, checkpoints.cleaned_offsets_changed)

    def start(self) -> None:
        config = self._runtime.config
        self._every(
            config.log_retention_check_interval_ms,
            "retention",
            self._for_each_log(self._apply_retention),
            TimerKind.RETENTION,
        )
        self._every(
            config.producer_id_expiration_check_interval_ms,
            "producer expiration",
            self._for_each_log(self._forget_producers),
            TimerKind.PRODUCER_EXPIRY,
        )
        self._every(
            max(config.replica_lag_time_max_ms // 2, 1),
            "ISR",
            self._for_each_log(self._replicas.shrink_isr),
            TimerKind.REPLICA_LAG,
        )
        self._every(SYNC_INTERVAL_MS, "sync", self._for_each_log(self._replicas.sync_if_overdue))
        self._every(SYNC_INTERVAL_MS, "checkpoints", self._checkpoints.retry)
        self._every(DELETION_INTERVAL_MS, "deletion", self.remove_files, TimerKind.FILE_DELETION)
        self._every(BUFFERS_INTERVAL_MS, "buffers", self._release_buffers)
        self._every(
            config.replica_high_watermark_checkpoint_interval_ms,
            "high watermarks",
            self._checkpoints.high_watermarks_rose,
        )
        self._every(
            config.log_flush_offset_checkpoint_interval_ms, "recovery points", self._checkpoints.recovery_points_rose
        )
        self._every(
            config.log_flush_start_offset_checkpoint_interval_ms, "log starts", self._checkpoints.log_starts_rose
        )
        self._cleaner.start()

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for rounds in self._rounds:
            rounds.stop()
        self._cleaner.stop()

    def configured(self) -> None:
        """Properties of the broker were altered."""
        self._cleaner.configured()

    def _every(
        self, interval_ms: int, job: str, action: Callable[[], None], kind: TimerKind = TimerKind.TRANSPORT
    ) -> None:
        def run() -> None:
            # First of all the next time, so that no failure is the last time.
            self._every(interval_ms, job, action, kind)
            action()

        self._timers[job] = self._runtime.schedule(interval_ms, run, kind)

    def _for_each_log(self, job: Callable[[Partition], None]) -> Callable[[], None]:
        rounds = LogRounds(self._runtime, self._replicas, job, self._log_failure)
        self._rounds.append(rounds)
        return rounds.begin

    def _log_failure(self, partition: Partition, error: Exception) -> None:
        self._runtime.log.storage.error(
            "maintenance of a log failed", topic=partition.topic, partition=partition.index, **cause_of(error)
        )

    @property
    def compaction_ns(self) -> int:
        """How long compactions have taken in all, since the start."""
        return self._cleaner.compaction_ns

    @property
    def dirty_ratio_max(self) -> float | None:
        """The largest part of a compacted log that no compaction has seen yet, where that is known."""
        return self._cleaner.dirty_ratio_max

    @property
    def has_failed_checkpoint(self) -> bool:
        """Whether a checkpoint could not be written when that was tried last."""
        return self._checkpoints.has_failed

    def apply_retention(self, topic: str) -> None:
        """Now, to the logs of one topic."""
        for partition in list(self._replicas):
            if partition.topic == topic:
                self._apply_retention(partition)

    def clean_now(self, done: Callable[[], None]) -> None:
        """As `Cleaner.clean_now`."""
        self._cleaner.clean_now(done)

    def _apply_retention(self, partition: Partition) -> None:
        log = partition.log
        log.release_idle()
        removed = log.expire(self._runtime.broker_clock.wall_ms(), partition.high_watermark)
        if removed:
            partition.sessions.mark_dirty()
            self._checkpoints.log_starts_rose(partial(self._delete_expired, partition, log.log_start_offset))
        for expired in removed:
            self.retention_deleted_bytes += expired.size_bytes
            self._runtime.log.storage.info(
                "retention",
                topic=partition.topic,
                partition=partition.index,
                segments=len(expired.segments),
                why=expired.reason,
                log_start_offset=log.log_start_offset,
            )

    def _delete_expired(self, partition: Partition, log_start_offset: int) -> None:
        """The checkpoint of log starts has been written. If it could not be, the disk may be full of old segments."""
        log = partition.log
        if not self._timers or log.failure is not None:
            return
        try:
            log.delete_expired(log_start_offset, self._runtime.broker_clock.wall_ms())
        except KafkaError as error:
            self._log_failure(partition, error)

    def _forget_producers(self, partition: Partition, from_id: int | None = None) -> None:
        producers = partition.log.known_producers
        if producers is None:
            # After a truncation, until a thread has read them again, or a caller has asked.
            return
        expiry = producers.expire(self._runtime.broker_clock.wall_ms(), from_id)
        if expiry.next_id is not None:
            self._runtime.soon(partial(self._forget_more_producers, partition, expiry.next_id))

    def _forget_more_producers(self, partition: Partition, from_id: int) -> None:
        if self._timers and partition.log.failure is None:
            self._forget_producers(partition, from_id)

    def _release_buffers(self) -> None:
        BUFFERS.release_idle()
        self._release_receive_buffers()

    def remove_files(self) -> None:
        """Those of deleted logs whose time has come, in a thread."""
        directory, wall_ms = self._directory, self._runtime.broker_clock.wall_ms()
        due = directory.take_due_deletions(wall_ms)
        if due is None:
            return

        def done() -> None:
            try:
                directory.finish_deletions(due, wall_ms)
            except KafkaError as error:
                self._runtime.log.storage.error("files of deleted logs could not be removed", why=str(error))

        self._runtime.offload(due.run, done)

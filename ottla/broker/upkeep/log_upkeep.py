"""What a broker does by itself from time to time: retention, removing files, forgetting producers, checkpoints; and it
starts the cleaner.

Each job is decided on the loop; the part that only touches files runs in a thread. A log that fails does not keep the
others from being looked after.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.upkeep.checkpoint_writer import CheckpointWriter
from ottla.broker.upkeep.log_cleaner import Cleaner
from ottla.protocol.errors import KafkaError
from ottla.replication.partition import Partition
from ottla.storage.reader import BUFFERS
from ottla.timer.wheel import TimerEntry

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.storage.log_directory import Checkpoint

# Condemned files are looked for this often; they wait for `file.delete.delay.ms` anyway.
DELETION_INTERVAL_MS = 10_000
# Complete segments are looked for this often. What they delay is only how much is read again after a crash.
SYNC_INTERVAL_MS = 10_000
# A buffer that nothing has needed for so long is given back; having another one costs the kernel some 200 µs.
BUFFERS_INTERVAL_MS = 10_000


class Housekeeping:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._timers: dict[str, TimerEntry] = {}
        self._cleaner_checkpoint = CheckpointWriter(broker, "cleaned offsets", broker.log_directory.cleaner_checkpoint)
        self._recovery_points = CheckpointWriter(
            broker, "recovery points", broker.log_directory.recovery_point_checkpoint
        )
        self._cleaner = Cleaner(broker, self._cleaner_checkpoint.request)

    def start(self) -> None:
        config = self._broker.config
        directory = self._broker.log_directory
        self._every(config.log_retention_check_interval_ms, "retention", self._for_each_log(self._apply_retention))
        self._every(
            config.producer_id_expiration_check_interval_ms,
            "producer expiration",
            self._for_each_log(self._forget_producers),
        )
        self._every(max(config.replica_lag_time_max_ms // 2, 1), "ISR", self._broker.replicas.shrink_isrs)
        self._every(SYNC_INTERVAL_MS, "sync", self._for_each_log(self._broker.replicas.sync_if_overdue))
        self._every(DELETION_INTERVAL_MS, "deletion", self._remove_files)
        self._every(BUFFERS_INTERVAL_MS, "buffers", self._release_buffers)
        self._checkpoint_every(
            config.replica_high_watermark_checkpoint_interval_ms, "high watermarks", self.high_watermark_checkpoint
        )
        self._every(config.log_flush_offset_checkpoint_interval_ms, "recovery points", self._recovery_points.request)
        self._checkpoint_every(
            config.log_flush_start_offset_checkpoint_interval_ms, "log starts", directory.log_start_checkpoint
        )
        self._cleaner.start()

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._cleaner.stop()

    def configured(self) -> None:
        """Properties of the broker were altered."""
        self._cleaner.configured()

    def recovery_points_fell(self, done: Callable[[], None] | None = None) -> None:
        """Logs were cut or deleted: what comes to stand there must not count as durable, or as read, for what is gone.

        `done` is called when the checkpoint no longer says so."""
        self._recovery_points.request(done)

    def _every(self, interval_ms: int, job: str, action: Callable[[], None]) -> None:
        def run() -> None:
            # First of all the next time, so that no failure is the last time.
            self._every(interval_ms, job, action)
            action()

        self._timers[job] = self._broker.wheel.schedule(self._broker.clock.now_ms() + interval_ms, run)

    def _for_each_log(self, action: Callable[[Partition], None]) -> Callable[[], None]:
        def run() -> None:
            for partition in self._broker.replicas:
                try:
                    action(partition)
                except KafkaError as error:
                    self._broker.log.error(
                        "housekeeping failed", topic=partition.topic, partition=partition.index, why=str(error)
                    )

        return run

    def _checkpoint_every(self, interval_ms: int, name: str, make: "Callable[[], Checkpoint]") -> None:
        self._every(interval_ms, name, CheckpointWriter(self._broker, name, make).request)

    def high_watermark_checkpoint(self) -> "Checkpoint":
        return self._broker.log_directory.high_watermark_checkpoint(
            {(partition.topic, partition.index): partition.high_watermark for partition in self._broker.replicas}
        )

    def _apply_retention(self, partition: Partition) -> None:
        log = partition.log
        log.release_idle()
        removed = log.apply_retention(self._broker.clock.wall_ms(), partition.high_watermark)
        if removed:
            partition.sessions.mark_dirty()
        for expired in removed:
            self._broker.log.info(
                "retention",
                topic=partition.topic,
                partition=partition.index,
                segments=len(expired.segments),
                why=expired.reason,
                log_start_offset=log.log_start_offset,
            )

    def _forget_producers(self, partition: Partition) -> None:
        partition.log.producers.expire(self._broker.clock.wall_ms())

    def _release_buffers(self) -> None:
        BUFFERS.release_idle()
        self._broker.server.receive_buffers.release_idle()

    def _remove_files(self) -> None:
        directory, wall_ms = self._broker.log_directory, self._broker.clock.wall_ms()
        due = directory.take_due_deletions(wall_ms)
        if due is None:
            return

        def done() -> None:
            try:
                directory.finish_deletions(due, wall_ms)
            except KafkaError as error:
                self._broker.log.error("files of deleted logs could not be removed", why=str(error))

        self._broker.offload(due.run, done)

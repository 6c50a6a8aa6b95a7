"""What a broker does by itself from time to time: retention, removing files, checkpoints; and it starts the cleaner.

Each job is decided on the loop; the part that only touches files runs in a thread.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.cleaner import Cleaner
from ottla.protocol.errors import KafkaError
from ottla.timer.wheel import TimerEntry

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

# Condemned files are looked for this often; they wait for `file.delete.delay.ms` anyway.
DELETION_INTERVAL_MS = 10_000


class Housekeeping:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._timers: dict[str, TimerEntry] = {}
        self._cleaner = Cleaner(broker)

    def start(self) -> None:
        config = self._broker.config
        self._every(config.log_retention_check_interval_ms, "retention", self._apply_retention)
        self._every(
            config.replica_high_watermark_checkpoint_interval_ms, "high watermarks", self.checkpoint_high_watermarks
        )
        directory = self._broker.log_directory
        self._every(
            config.log_flush_offset_checkpoint_interval_ms, "recovery points", directory.checkpoint_recovery_points
        )
        self._every(
            config.log_flush_start_offset_checkpoint_interval_ms, "log starts", directory.checkpoint_log_start_offsets
        )
        self._every(DELETION_INTERVAL_MS, "deletion", self._remove_files)
        self._cleaner.start()

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._cleaner.stop()

    def _every(self, interval_ms: int, job: str, action: Callable[[], None]) -> None:
        def run() -> None:
            try:
                action()
            except KafkaError as error:
                self._broker.log.error("housekeeping failed", job=job, why=str(error))
            self._every(interval_ms, job, action)

        self._timers[job] = self._broker.wheel.schedule(self._broker.clock.now_ms() + interval_ms, run)

    def checkpoint_high_watermarks(self) -> None:
        self._broker.log_directory.checkpoint_high_watermarks(
            {(partition.topic, partition.index): partition.high_watermark for partition in self._broker.replicas}
        )

    def _apply_retention(self) -> None:
        now_wall_ms = self._broker.clock.wall_ms()
        for partition in self._broker.replicas:
            if not partition.log.config.deletes_old_segments:
                continue
            removed = partition.log.apply_retention(now_wall_ms, partition.high_watermark)
            if removed:
                self._broker.log.info(
                    "retention",
                    topic=partition.topic,
                    partition=partition.index,
                    segments=len(removed),
                    log_start_offset=partition.log.log_start_offset,
                )

    def _remove_files(self) -> None:
        due = self._broker.log_directory.take_due_deletions(self._broker.clock.wall_ms())
        if due is not None:
            self._broker.offload(due.run, lambda: None)

"""When appended records go to the disk, for topics that set `flush.messages` or `flush.ms`; and what a new segment
leaves to be written: names, and snapshots of many producers.

The log knows when a sync is due, and which acknowledgements wait for it. One sync of all waiting logs is on its way at
a time; what is appended during it goes with the next (group commit).
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ottla.broker.histogram import Histogram
from ottla.broker.logging import cause_of
from ottla.broker.runtime import Runtime
from ottla.protocol.errors import KafkaError
from ottla.replication.partition import Partition
from ottla.storage.durability import Flushable, Flusher, run_all
from ottla.storage.local_log import NamesSync
from ottla.storage.log_config import NEVER
from ottla.storage.producer_snapshots import SnapshotWrite
from ottla.timer.clock import Clock
from ottla.timer.wheel import TimerEntry

# One call in a thread syncs the names of so many logs at most.
LOGS_AT_ONCE = 50
# What failed without harm to the log, as for want of space, is tried again.
RETRY_MS = 1000


class DiskSync:
    def __init__(
        self, runtime: Runtime, synced: Callable[[Partition], None], write_failed: Callable[[Partition], None]
    ) -> None:
        """`synced` is called when records of a partition have reached the disk, or failed to; before it
        `write_failed`, where they failed to."""
        self._runtime = runtime
        self._write_failed = write_failed
        self._synced = synced
        self.flush_times = Histogram()
        self._flusher = Flusher(self._offload, partial(runtime.guard, self._flushed))
        self._partition_of: dict[int, Partition] = {}
        # Partitions whose `flush.ms` is running.
        self._timers: dict[Partition, TimerEntry] = {}

    def opened(self, partition: Partition) -> None:
        """What an earlier life has written and not synced, for it was killed, counts when it is synced: neither a high
        watermark nor a follower's fetch may say before that it is there."""
        log = partition.log
        if log.waits_for_sync and log.failure is None and log.flushed_offset < log.log_end_offset:
            log.maybe_require_sync(self._runtime.broker_clock.wall_ms())
            self.written(partition)

    def written(self, partition: Partition) -> None:
        """Records were written to the log of a topic that syncs."""
        log = partition.log
        if log.needs_flush:
            self.request(partition)
        elif log.config.flush_ms != NEVER and partition not in self._timers:
            deadline_ms = self._runtime.clock.now_ms() + log.config.flush_ms
            self._timers[partition] = self._runtime.wheel.schedule(deadline_ms, lambda: self._time_has_come(partition))

    def configured(self, partition: Partition) -> None:
        """`flush.messages` or `flush.ms` may have another value: it holds for what is already written too."""
        self._stop_timer(partition)
        log = partition.log
        if log.failure is not None or log.flushed_offset == log.log_end_offset:
            return
        if log.is_flush_overdue(self._runtime.broker_clock.wall_ms()):
            self.request(partition)
        else:
            self.written(partition)

    def _stop_timer(self, partition: Partition) -> None:
        timer = self._timers.pop(partition, None)
        if timer is not None:
            timer.cancel()

    def _time_has_come(self, partition: Partition) -> None:
        del self._timers[partition]
        if partition.log.failure is None and partition.log.flushed_offset < partition.log.log_end_offset:
            self.request(partition)

    def request(self, partition: Partition) -> None:
        """Sync the partition's log with the next group."""
        self._partition_of[id(partition.log)] = partition
        self._flusher.request(partition.log)

    def forget(self, partition: Partition) -> None:
        """The partition is deleted; a sync of its log that may be on its way is ignored."""
        self._partition_of.pop(id(partition.log), None)
        self._stop_timer(partition)

    def _offload(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        timed = _TimedWork(self._runtime.clock, work)
        self._runtime.offload(timed.run, partial(self._finish, timed, done))

    def _finish(self, timed: "_TimedWork", done: Callable[[], None]) -> None:
        self.flush_times.observe(timed.duration_ns)
        done()

    def _flushed(self, log: Flushable, error: Exception | None) -> None:
        partition = self._partition_of.get(id(log))
        if partition is None:
            return
        if error is not None:
            if partition.log.failure is None:
                deadline_ms = self._runtime.clock.now_ms() + RETRY_MS
                self._runtime.wheel.schedule(deadline_ms, lambda: self._try_again(partition))
            self._runtime.log.storage.error(
                "sync failed", topic=partition.topic, partition=partition.index, **cause_of(error)
            )
            self._write_failed(partition)
        self._synced(partition)

    def _try_again(self, partition: Partition) -> None:
        if id(partition.log) in self._partition_of and partition.log.failure is None and partition.log.needs_flush:
            self.request(partition)


class _TimedWork:
    """Work for a thread, and how long it took there."""

    def __init__(self, clock: Clock, work: Callable[[], None]) -> None:
        self.duration_ns = 0
        self._clock = clock
        self._work = work

    def run(self) -> None:
        began_ns = self._clock.now_ns()
        self._work()
        self.duration_ns = self._clock.now_ns() - began_ns


class NameSync:
    """Makes the names of new segments durable in a thread.

    A log does that itself before it begins the next segment, which then waits for the disk on the loop."""

    def __init__(self, runtime: Runtime, failed: Callable[[Partition], None]) -> None:
        self._runtime = runtime
        self._failed = failed
        self._waiting: dict[Partition, None] = {}
        self._is_running = False

    def request(self, partition: Partition) -> None:
        self._waiting[partition] = None
        if not self._is_running:
            self._start()

    def forget(self, partition: Partition) -> None:
        """The partition is deleted."""
        self._waiting.pop(partition, None)

    def _start(self) -> None:
        started: list[tuple[Partition, NamesSync]] = []
        while self._waiting and len(started) < LOGS_AT_ONCE:
            partition, _ = self._waiting.popitem()
            # A log that has failed is not synced any more; what cannot be opened now is when the next segment begins.
            with suppress(KafkaError):
                started.append((partition, partition.log.begin_names_sync()))
        self._is_running = bool(started)
        if not started:
            return

        self._runtime.offload(partial(run_all, [sync for _, sync in started]), lambda: self._finish(started))

    def _finish(self, started: "list[tuple[Partition, NamesSync]]") -> None:
        for partition, sync in started:
            self._runtime.guard(self._finish_one, partition, sync)
        self._start()

    def _finish_one(self, partition: Partition, sync: NamesSync) -> None:
        if partition.log.failure is None:
            try:
                partition.log.finish_names_sync(sync)
            except KafkaError as error:
                self._sync_failed(partition, error)

    def _sync_failed(self, partition: Partition, error: KafkaError) -> None:
        self._runtime.log.storage.error("sync failed", topic=partition.topic, partition=partition.index, why=str(error))
        if partition.log.failure is not None:
            self._failed(partition)


class SnapshotWrites:
    """Writes the snapshots of logs that have very many producers in a thread, of one log at a time.

    Where it rolls, a log captures its producers; what is made of that takes megabytes."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: dict[Partition, None] = {}
        self._is_running = False

    def request(self, partition: Partition) -> None:
        """If its log has left one to be written."""
        if partition.log.has_snapshot_to_write:
            self._waiting[partition] = None
            if not self._is_running:
                self._start()

    def forget(self, partition: Partition) -> None:
        """The partition is deleted."""
        self._waiting.pop(partition, None)

    def _start(self) -> None:
        self._is_running = False
        while self._waiting and not self._is_running:
            partition = next(iter(self._waiting))
            del self._waiting[partition]
            try:
                write = partition.log.begin_snapshot()
            except Exception as error:
                self._log_failure(partition, error)
                continue
            if write is not None:
                self._is_running = True
                self._runtime.offload(write.run, partial(self._finish, partition, write))

    def _finish(self, partition: Partition, write: SnapshotWrite) -> None:
        try:
            partition.log.finish_snapshot(write)
        except Exception as error:
            self._log_failure(partition, error)
        if partition.log.has_snapshot_to_write:
            # The log has rolled since.
            self._waiting[partition] = None
        self._start()

    def _log_failure(self, partition: Partition, error: Exception) -> None:
        self._runtime.log.storage.error(
            "no producer snapshot was written", topic=partition.topic, partition=partition.index, **cause_of(error)
        )

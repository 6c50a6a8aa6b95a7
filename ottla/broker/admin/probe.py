"""What the health of a broker is decided on, read from its parts at every probe; and the disk, read in a thread."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from ottla.broker.admin.health import HealthFacts
from ottla.broker.metadata.broker_lifecycle import BrokerLifecycle
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.runtime import LoopRuntime
from ottla.broker.upkeep.log_manager import LogManager
from ottla.storage.log_directory import LogDirectory
from ottla.timer.wheel import TimerEntry

DISK_INTERVAL_MS = 15_000
# So often the lateness of the loop is seen at least.
TICK_MS = 250
# A disk that does not answer has no figure, rather than its last one for ever.
DISK_FIGURE_VALID_MS = 60_000
# So long after the last event that was dropped.
DROPPING_MS = 60_000

CAUGHT_UP = "caught-up"


class DiskRoom(NamedTuple):
    total_bytes: int
    free_bytes: int


class DiskGauge:
    """The room on the disk of the data directory: asked for in a thread, since a file system that hangs would take the
    loop with it."""

    def __init__(self, runtime: LoopRuntime, path: Path) -> None:
        self._runtime = runtime
        self._path = path
        self._room: DiskRoom | None = None
        self._measured_ms = 0
        self._is_measuring = False
        self._timer: TimerEntry | None = None

    def start(self) -> None:
        self._timer = self._runtime.schedule(DISK_INTERVAL_MS, self.start)
        if not self._is_measuring:
            self._is_measuring = True
            self._runtime.offload(self._measure, self._measured)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def room(self) -> DiskRoom | None:
        """None where it is not known, or not any more."""
        is_valid = self._runtime.clock.now_ms() - self._measured_ms <= DISK_FIGURE_VALID_MS
        return self._room if is_valid else None

    def _measure(self) -> None:
        try:
            system = os.statvfs(self._path)
            # The blocks that are kept for root are not free for the broker.
            self._room = DiskRoom(system.f_blocks * system.f_frsize, system.f_bavail * system.f_frsize)
        except OSError:
            self._room = None

    def _measured(self) -> None:
        self._is_measuring = False
        self._measured_ms = self._runtime.clock.now_ms()


class LoopTick:
    """A timer that does nothing: an idle broker has few others, and its loop may be late all the same."""

    def __init__(self, runtime: LoopRuntime) -> None:
        self._runtime = runtime
        self._timer: TimerEntry | None = None

    def start(self) -> None:
        self._timer = self._runtime.schedule(TICK_MS, self.start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class LoadingCoordinators(Protocol):
    def loading(self) -> Sequence[object]:
        """What is being loaded."""
        ...


class EventCounts(Protocol):
    dropped_total: int


class HealthProbe:
    def __init__(
        self,
        runtime: LoopRuntime,
        lifecycle: BrokerLifecycle,
        metadata: ClusterMetadata,
        directory: LogDirectory,
        log_manager: LogManager,
        coordinators: LoadingCoordinators,
        events: EventCounts | None,
    ) -> None:
        self._runtime = runtime
        self._lifecycle = lifecycle
        self._metadata = metadata
        self._directory = directory
        self._log_manager = log_manager
        self._coordinators = coordinators
        self._events = events
        self.disk = DiskGauge(runtime, directory.path)
        self._tick = LoopTick(runtime)
        self._dropped_seen = 0
        self._dropped_ms: int | None = None
        config = runtime.config
        is_required = config.ottla_health_ready_requires == CAUGHT_UP
        self._catching_up = _CatchingUp(runtime, self._missing_replicas) if is_required else None

    def start(self) -> None:
        self.disk.start()

    def watch_loop(self) -> None:
        """From now on an idle loop shows how late it is: somebody asks for metrics."""
        self._tick.start()

    def stop(self) -> None:
        self.disk.stop()
        self._tick.stop()

    @property
    def metadata(self) -> ClusterMetadata:
        return self._metadata

    @property
    def session_remaining_ms(self) -> int:
        return self._lifecycle.session_remaining_ms

    @property
    def failed_logs(self) -> int:
        return sum(log.failure is not None for log in self._directory.logs.values())

    @property
    def store_errors(self) -> int:
        return self._lifecycle.store_errors

    @property
    def retention_deleted_bytes(self) -> int:
        return self._log_manager.retention_deleted_bytes

    @property
    def compaction_ns(self) -> int:
        return self._log_manager.compaction_ns

    @property
    def dirty_ratio_max(self) -> float | None:
        return self._log_manager.dirty_ratio_max

    @property
    def store_answers(self) -> bool:
        return self._lifecycle.store_answers

    def facts(self) -> HealthFacts:
        logs = self._directory.logs.values()
        room = self.disk.room
        return HealthFacts(
            state=self._lifecycle.state,
            store_answers=self._lifecycle.store_answers,
            logs=len(logs),
            failed_logs=self.failed_logs,
            has_failed_checkpoint=self._log_manager.has_failed_checkpoint,
            oldest_disk_call_ms=self._runtime.oldest_work_ms,
            loading_coordinators=len(self._coordinators.loading()),
            not_caught_up=None if self._catching_up is None else self._catching_up.count(),
            disk_free_ratio=None if room is None or not room.total_bytes else room.free_bytes / room.total_bytes,
            is_dropping_events=self._is_dropping(),
        )

    def _is_dropping(self) -> bool:
        dropped, now_ms = (0 if self._events is None else self._events.dropped_total), self._runtime.clock.now_ms()
        if dropped != self._dropped_seen:
            self._dropped_seen, self._dropped_ms = dropped, now_ms
        return self._dropped_ms is not None and now_ms - self._dropped_ms < DROPPING_MS

    def _missing_replicas(self) -> set[tuple[str, int]]:
        node_id = self._runtime.node_id
        return {
            (topic.name, index)
            for topic, index, state in self._metadata.image.partitions()
            if node_id in state.replicas and node_id not in state.isr
        }


class _CatchingUp:
    """The replicas that have not been in the ISR since the start. One that has been may leave it: that is no reason to
    take the broker's clients away from it."""

    def __init__(self, runtime: LoopRuntime, find: Callable[[], set[tuple[str, int]]]) -> None:
        self._runtime = runtime
        self._find = find
        self._missing: set[tuple[str, int]] | None = None
        self._deadline_ms = runtime.clock.now_ms() + runtime.config.ottla_health_caught_up_timeout_ms

    def count(self) -> int:
        if not self._runtime.is_serving:
            return 0
        if self._missing is None:
            self._missing = self._find()
        elif self._missing:
            self._missing &= self._find()
        return len(self._missing) if self._runtime.clock.now_ms() < self._deadline_ms else 0

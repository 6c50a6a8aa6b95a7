"""One `__consumer_offsets` partition and its groups: events in, one at a time; effects out, in order.

Groups share the queue of their partition. It is the lock of each of them: requests, timers and results of appends are
taken in the order of their arrival, a step never waits, and what comes up while the effects of a step are performed
queues behind it. Groups of other partitions are not held up, and neither is anyone else: what a step waits for (a
member, a replica, the disk) comes back as an event.
"""

from collections import deque
from typing import TYPE_CHECKING, Any

from ottla.cluster.image import CONSUMER_OFFSETS
from ottla.coordinator.events import TopicsDeleted
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.runtime.effects import (
    Append,
    AppendCompleted,
    AppendFailed,
    CancelTimer,
    CoordinatorRecord,
    Effect,
    Observed,
    Reply,
    SetTimer,
    TimerFired,
)
from ottla.coordinator.runtime.partition import CoordinatorPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.record import Record, build_batch
from ottla.storage.log import AppendInfo
from ottla.timer.wheel import TimerEntry

if TYPE_CHECKING:
    from ottla.broker.coordinators.group_coordinator import GroupService


# Clients ask again at once when their group could not be stored, librdkafka a thousand times a second.
TOO_FEW_REPLICAS_MS = 100


class GroupPartition:
    """Loading until `finish_loading` or `fail_loading`; until it serves, requests are refused as Kafka does.

    It lives for one term of this broker as leader of the partition."""

    def __init__(
        self, service: "GroupService", index: int, coordinator: CoordinatorPartition[GroupShard], leader_epoch: int
    ) -> None:
        self.index = index
        self.coordinator = coordinator
        self.leader_epoch = leader_epoch
        self.is_loading = True
        self.is_unloaded = False
        self.failed_loads = 0
        # When it is loaded again, after a load that failed.
        self.reload: TimerEntry | None = None
        self._is_serving = False
        self._service = service
        self._broker = service.broker
        self.began_ms = self._broker.clock.now_ms()
        self._queue: deque[Any] = deque()
        self._deleted_before_serving: list[TopicsDeleted] = []
        self._stepping = False
        self._timers: dict[Any, TimerEntry] = {}
        # What will be told of appends that were refused, by their ids.
        self._refusals: dict[int, TimerEntry] = {}

    def handle(self, event: Any) -> None:
        """Take an event: at once, or after those that are being taken."""
        if not self._is_serving and isinstance(event, TopicsDeleted):
            # Their offsets may be among those still to be read.
            self._deleted_before_serving.append(event)
            return
        self._queue.append(event)
        if not self._stepping:
            self._take_queued()

    def still_loads(self) -> bool:
        """Whether the records that were just read are still wanted."""
        return self.is_loading

    def finish_loading(self) -> None:
        """All records have been replayed: start the sessions of the members that were found, and serve."""
        self.is_loading = False
        clock = self._broker.clock
        self._perform_all(self.coordinator.finish_loading(clock.now_ms(), clock.wall_ms()))
        self._is_serving = True
        self._queue.extend(self._deleted_before_serving)
        self._take_queued()
        self._deleted_before_serving.clear()

    def fail_loading(self) -> None:
        """Serve nothing (§4.4.6): a half-loaded coordinator would send consumers back to their first record."""
        self.failed_loads += 1
        self._is_serving = False
        self.is_loading = False
        self._drop_events()
        self.coordinator.fail_loading()

    def restart_loading(self, coordinator: CoordinatorPartition[GroupShard]) -> None:
        """After a load that failed: all records will be replayed into a new coordinator."""
        self.coordinator = coordinator
        self.began_ms = self._broker.clock.now_ms()
        self.is_loading = True

    def unload(self) -> None:
        """Leadership is gone or the broker stops: who waits is told, nothing is taken any more."""
        clock = self._broker.clock
        self._perform_all(self.coordinator.unload(clock.now_ms(), clock.wall_ms()))
        self._drop_events()
        if self.reload is not None:
            self.reload.cancel()
        self.is_loading = False
        self.is_unloaded = True

    def _drop_events(self) -> None:
        """Those that have come, and those that would."""
        for entry in (*self._timers.values(), *self._refusals.values()):
            entry.cancel()
        self._timers.clear()
        self._refusals.clear()
        self._queue.clear()

    def _take_queued(self) -> None:
        clock = self._broker.clock
        self._stepping = True
        try:
            while self._queue:
                event = self._queue.popleft()
                for effect in self.coordinator.step(event, clock.now_ms(), clock.wall_ms()):
                    self._perform(effect)
        finally:
            self._stepping = False

    def _perform_all(self, effects: list[Effect]) -> None:
        self._stepping = True
        try:
            for effect in effects:
                self._perform(effect)
        finally:
            self._stepping = False

    def _perform(self, effect: Effect) -> None:
        # Heartbeats have no other effect, and a class pattern takes as long to see that as the delivery itself.
        if isinstance(effect, Reply):
            self._service.deliver(effect.token, effect.result)
            return
        match effect:
            case SetTimer(key, deadline_ms):
                self._set_timer(key, deadline_ms)
            case CancelTimer(key):
                entry = self._timers.pop(key, None)
                if entry is not None:
                    entry.cancel()
            case Append(append_id, records):
                self._append(append_id, records)
            case Observed(fact):
                self._service.observe(fact)

    def _set_timer(self, key: Any, deadline_ms: int) -> None:
        entry = self._timers.get(key)
        if entry is not None:
            entry.reschedule(deadline_ms)
            return

        def fire() -> None:
            self._timers.pop(key, None)
            self.handle(TimerFired(key))

        self._timers[key] = self._broker.wheel.schedule(deadline_ms, fire)

    def _append(self, append_id: int, records: tuple[CoordinatorRecord, ...]) -> None:
        """Append with acks=all and `offsets.commit.timeout.ms`. Late success after a timeout is told as well."""
        clock = self._broker.clock
        wall_ms = clock.wall_ms()
        batch = build_batch(
            (Record(timestamp=wall_ms, key=key, value=value) for key, value in records),
            codec=self._broker.config.offsets_topic_compression_codec,
        )
        deadline_ms = clock.now_ms() + self._broker.config.offsets_commit_timeout_ms
        timeout = self._broker.wheel.schedule(
            deadline_ms, lambda: self._told(AppendFailed(append_id, ErrorCode.REQUEST_TIMED_OUT))
        )

        def done(info: AppendInfo | None, error: KafkaError | None) -> None:
            timeout.cancel()
            if info is not None:
                self._told(AppendCompleted(append_id, info.base_offset))
            elif error is not None and error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
                self._refuse_later(append_id)
            else:
                code = error.code if error is not None else ErrorCode.UNKNOWN_SERVER_ERROR
                self._told(AppendFailed(append_id, code))

        self._broker.replicas.append_records(CONSUMER_OFFSETS, self.index, memoryview(batch), done)

    def _refuse_later(self, append_id: int) -> None:
        if self.is_unloaded:
            return

        def refuse() -> None:
            del self._refusals[append_id]
            self._told(AppendFailed(append_id, ErrorCode.NOT_ENOUGH_REPLICAS))

        deadline_ms = self._broker.clock.now_ms() + TOO_FEW_REPLICAS_MS
        self._refusals[append_id] = self._broker.wheel.schedule(deadline_ms, refuse)

    def _told(self, event: AppendCompleted | AppendFailed) -> None:
        if not self.is_unloaded:
            self.handle(event)

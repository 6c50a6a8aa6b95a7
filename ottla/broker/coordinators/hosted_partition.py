"""One partition of a coordinator topic that this broker leads: events in, one at a time; effects out, in order.

What the partition holds (groups, transactional ids) shares its queue. It is the lock of each of them: requests, timers
and results of appends are taken in the order of their arrival, a step never waits, and what comes up while the effects
of a step are performed queues behind it. Other partitions are not held up, and neither is anything else: what a step
waits for (a member, a replica, the disk) comes back as an event.

A group may have thousands of members. A step about them comes in slices, each with its effects in a step of the loop;
events wait until it is done, so that it is one step to the groups all the same. The facts of a long step are reported a
few at a time, and that its large record is in the log is a step of its own.
"""

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

from ottla.broker.runtime import Runtime
from ottla.coordinator.runtime.effects import (
    Append,
    AppendCompleted,
    AppendFailed,
    CancelTimer,
    Dispatch,
    Effect,
    Observed,
    ProducerIdAndEpoch,
    Reply,
    SetTimer,
    TimerFired,
)
from ottla.coordinator.runtime.partition import CoordinatorPartition, CoordinatorShard, Phase
from ottla.protocol.errors import ErrorCode, KafkaError, MessageTooLarge
from ottla.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.protocol.records.record import Record, build_batch
from ottla.storage.log import AppendInfo, Origin, VerificationGuard
from ottla.timer.clock import TimerKind
from ottla.timer.wheel import TimerEntry

# Clients ask again at once when their group could not be stored, librdkafka a thousand times a second.
TOO_FEW_REPLICAS_MS = 100
# What has waited for a long step; a request of a member takes some 30 µs.
EVENTS_PER_STEP = 64
# Each may be a line of the log, which takes some 50 µs.
FACTS_PER_STEP = 32
# Handling what was written takes as long again as it took to write it.
LARGE_RECORD_BYTES = 32 << 10
# A batch numbers its records itself.
NO_OFFSET = -1
NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

S = TypeVar("S", bound=CoordinatorShard)
AppendDone = Callable[[AppendInfo | None, KafkaError | None], None]


class PartitionOwner(Protocol):
    """What a partition asks of the topic that it belongs to."""

    name: str
    codec: int
    append_timeout_ms: int

    def append(
        self, index: int, records: memoryview, done: AppendDone, guard: VerificationGuard | None, origin: Origin
    ) -> None:
        """`guard` is what the first batch of a transaction presents to the log."""
        ...

    def batch_bytes_max(self, index: int) -> int: ...

    def dispatch(self, partition: Any, command: Any) -> None: ...

    def deliver(self, token: int, result: Any, /) -> None: ...

    def observe(self, fact: Any, now_ms: int, wall_ms: int, /) -> None:
        """With the time of the step, by both clocks."""
        ...


class HostedPartition(Generic[S]):
    """Loading until `finish_loading` or `fail_loading`; until it serves, requests are refused as Kafka does.

    It lives for one term of this broker as leader of the partition."""

    def __init__(
        self,
        runtime: Runtime,
        owner: PartitionOwner,
        index: int,
        coordinator: CoordinatorPartition[S],
        leader_epoch: int,
    ) -> None:
        self.index = index
        self.coordinator = coordinator
        self.leader_epoch = leader_epoch
        self.is_loading = True
        self.is_unloaded = False
        # How far the log has been read.
        self.loaded_offset = 0
        self.failed_loads = 0
        # When it is loaded again, after a load that failed.
        self.reload: TimerEntry | None = None
        self._is_serving = False
        self._runtime = runtime
        self._clock = runtime.broker_clock
        self._owner = owner
        self._deliver = owner.deliver
        self.began_ms = runtime.clock.now_ms()
        self._queue: deque[Any] = deque()
        self._before_serving: list[Any] = []
        self._stepping = False
        # The step that has slices left goes on with the next step of the loop; its time, by both clocks.
        self._goes_on = False
        self._now_ms = self._wall_ms = 0
        # Facts that are still to be reported, with the time of their step. Later ones come behind them.
        self._facts: deque[tuple[Any, int, int]] = deque()
        self._timers: dict[Hashable, TimerEntry] = {}
        # The ends of appends that are under way, by their ids, in the order in which they began; one timer for all, and
        # when it is due.
        self._append_deadlines: dict[int, int] = {}
        self._append_timer: TimerEntry | None = None
        # When appends that were refused are reported, by their ids.
        self._refusals: dict[int, TimerEntry] = {}

    @property
    def topic(self) -> str:
        return self._owner.name

    def handle(self, event: Any) -> None:
        """Take an event: at once, or after those that are being taken."""
        if self._stepping or self._queue:
            self._queue.append(event)
            if not self._stepping:
                self._take_queued()
            return
        self._stepping = True
        try:
            self._step(event)
        except BaseException:
            self._end_step()
            raise
        # What has come up goes on in the same step of the loop.
        if self._queue or self.coordinator.rest:
            self._take_queued(EVENTS_PER_STEP - 1)
        else:
            self._stepping = False

    def handle_once_loaded(self, event: Any) -> None:
        """Take an event that concerns what is still to be read as well."""
        if self._is_serving:
            self.handle(event)
        else:
            self._before_serving.append(event)

    def still_loads(self) -> bool:
        """Whether the records that were just read are still needed."""
        return self.is_loading

    def finish_loading(self) -> bool:
        """All records have been replayed: make a slice of what was found. Whether that was the last, and it is served
        from now on."""
        now_ms, wall_ms = self._clock.now_ms(), self._clock.wall_ms()
        effects = self.coordinator.finish_loading(now_ms, wall_ms)
        self.is_loading = self.coordinator.phase is Phase.LOADING
        self._perform_all(effects, now_ms, wall_ms)
        if self.is_loading:
            return False
        self._is_serving = True
        self._now_ms, self._wall_ms = now_ms, wall_ms
        self._queue.extend(self._before_serving)
        self._take_queued()
        self._before_serving.clear()
        return True

    def fail_loading(self) -> None:
        """Serve nothing (§4.4.6): a half-loaded coordinator would send consumers back to their first record."""
        self.failed_loads += 1
        self._is_serving = False
        self.is_loading = False
        self._cancel_timers()
        self.coordinator.fail_loading()
        self._refuse_queued()

    def restart_loading(self, coordinator: CoordinatorPartition[S]) -> None:
        """After a load that failed: all records will be replayed into a new coordinator."""
        self.coordinator = coordinator
        self.began_ms = self._runtime.clock.now_ms()
        self.loaded_offset = 0
        self.is_loading = True

    def unload(self) -> None:
        """This broker has resigned or stops: requests that wait are answered, no event is taken any more."""
        now_ms, wall_ms = self._clock.now_ms(), self._clock.wall_ms()
        self._perform_all(self.coordinator.unload(now_ms, wall_ms), now_ms, wall_ms)
        self._report_facts(len(self._facts))
        self._cancel_timers()
        if self.reload is not None:
            self.reload.cancel()
        if self._goes_on:
            self._goes_on = self._stepping = False
        self.is_loading = False
        self.is_unloaded = True
        self._refuse_queued()

    def _refuse_queued(self) -> None:
        """Requests that wait for the end of a step are refused then. Other events do nothing any more."""
        if not self._stepping:
            self._take_queued(len(self._queue))

    def _cancel_timers(self) -> None:
        for entry in (*self._timers.values(), *self._refusals.values()):
            entry.cancel()
        if self._append_timer is not None:
            self._append_timer.cancel()
            self._append_timer = None
        self._append_deadlines.clear()
        self._timers.clear()
        self._refusals.clear()

    # Steps. The clocks are read once for each: what it decides, reports and appends has one time, also when a step that
    # began later (`unload`) comes in between its effects.

    def _take_queued(self, most: int = EVENTS_PER_STEP) -> None:
        self._stepping = True
        try:
            while self._queue and most and not self.coordinator.rest:
                most -= 1
                self._step(self._queue.popleft())
        finally:
            self._end_step()

    def _step(self, event: Any) -> None:
        clock = self._clock
        now_ms, wall_ms = clock.now_ms(), clock.wall_ms()
        effects = self.coordinator.step(event, now_ms, wall_ms)
        if len(effects) > FACTS_PER_STEP:
            effects = self._without_facts(effects, now_ms, wall_ms)
        for effect in effects:
            # Heartbeats have no other effect: none of the functions for those is called to see that.
            if type(effect) is Reply:
                self._deliver(effect.token, effect.result)
            else:
                self._perform(effect, now_ms, wall_ms)
        if self.coordinator.rest:
            self._now_ms, self._wall_ms = now_ms, wall_ms

    def _end_step(self) -> None:
        self._stepping = False
        if self._queue or self.coordinator.rest:
            self._go_on_later()

    def _go_on_later(self) -> None:
        """The rest of a long step comes in the next step of the loop; so do the many events that have waited for it."""
        self._stepping = self._goes_on = True
        self._runtime.soon(self._go_on)

    def _go_on(self) -> None:
        """One slice of the step that is under way, or a few events; nothing after `unload`, which ended both."""
        if not self._goes_on:
            return
        self._goes_on = False
        if self.coordinator.rest:
            self._take_slice()
        else:
            self._take_queued()

    def _take_slice(self) -> None:
        now_ms, wall_ms = self._now_ms, self._wall_ms
        try:
            for effect in self._without_facts(self.coordinator.go_on(), now_ms, wall_ms):
                self._perform(effect, now_ms, wall_ms)
        finally:
            self._end_step()

    def _perform_all(self, effects: list[Effect], now_ms: int, wall_ms: int) -> None:
        """Within another step, or by itself."""
        within, self._stepping = self._stepping, True
        try:
            for effect in effects:
                self._perform(effect, now_ms, wall_ms)
        finally:
            self._stepping = within

    def _perform(self, effect: Effect, now_ms: int, wall_ms: int) -> None:
        match effect:
            case Reply(token, result):
                self._deliver(token, result)
            case SetTimer(key, deadline_ms, kind):
                self._set_timer(key, deadline_ms, now_ms, kind)
            case CancelTimer(key):
                entry = self._timers.pop(key, None)
                if entry is not None:
                    entry.cancel()
            case Append():
                self._append(effect, wall_ms)
            case Observed(fact):
                if self._facts:
                    self._facts.append((fact, now_ms, wall_ms))
                else:
                    self._owner.observe(fact, now_ms, wall_ms)
            case Dispatch(command):
                self._owner.dispatch(self, command)

    def _without_facts(self, effects: list[Effect], now_ms: int, wall_ms: int) -> list[Effect]:
        """The other effects of a long step; its facts are reported in the steps of the loop to come."""
        if not self._facts:
            self._runtime.soon(self._report_some)
        self._facts += [(effect.fact, now_ms, wall_ms) for effect in effects if isinstance(effect, Observed)]
        return [effect for effect in effects if not isinstance(effect, Observed)]

    def _report_some(self) -> None:
        try:
            self._report_facts(min(len(self._facts), FACTS_PER_STEP))
        finally:
            if self._facts:
                self._runtime.soon(self._report_some)

    def _report_facts(self, count: int) -> None:
        for _ in range(count):
            self._owner.observe(*self._facts.popleft())

    def _set_timer(self, key: Hashable, deadline_ms: int, now_ms: int, kind: TimerKind) -> None:
        wheel = self._runtime.broker_wheel
        if kind is TimerKind.TRANSPORT:
            # A step knows one time only, and that is broker time.
            wheel = self._runtime.wheel
            deadline_ms += self._runtime.clock.now_ms() - now_ms
        entry = self._timers.get(key)
        if entry is not None:
            entry.reschedule(deadline_ms)
            return

        def fire() -> None:
            self._timers.pop(key, None)
            self.handle_once_loaded(TimerFired(key))

        self._timers[key] = wheel.schedule(deadline_ms, fire, kind, key)

    # Appends

    def _append(self, effect: Append, wall_ms: int) -> None:
        """Append with acks=all and the owner's timeout. Late success after a timeout is reported as well."""
        append_id, records = effect.append_id, effect.records
        size_bytes = sum(len(key) + len(value or b"") for key, value in records)
        is_large = size_bytes > LARGE_RECORD_BYTES
        self._append_deadlines[append_id] = self._runtime.clock.now_ms() + self._owner.append_timeout_ms
        if self._append_timer is None:
            self._time_appends()

        def done(info: AppendInfo | None, error: KafkaError | None) -> None:
            self._append_deadlines.pop(append_id, None)
            if info is not None:
                self._report(AppendCompleted(append_id, info.base_offset), in_next_step=is_large)
            elif error is not None and error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
                self._refuse_later(append_id)
            else:
                code = error.code if error is not None else ErrorCode.UNKNOWN_SERVER_ERROR
                self._report(AppendFailed(append_id, code))

        is_bounded = not effect.ends_transaction
        if is_large and is_bounded and size_bytes > (most := self._owner.batch_bytes_max(self.index)):
            # It need not be built, which takes long, to be refused.
            error = MessageTooLarge(f"records of {size_bytes} bytes, at most {most} allowed")
            self._runtime.soon(lambda: done(None, error))
            return
        producer = effect.producer or NO_PRODUCER
        batch = build_batch(
            [Record(NO_OFFSET, wall_ms, key, value) for key, value in records],
            codec=self._owner.codec,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transactional=producer is not NO_PRODUCER,
        )
        origin = Origin.COORDINATOR if is_bounded else Origin.END_OF_TRANSACTION
        self._owner.append(self.index, memoryview(batch), done, effect.guard, origin)

    def _time_appends(self) -> None:
        """Until the oldest append has to end: almost all have ended long before, and no timer is moved for them."""
        oldest = next(iter(self._append_deadlines.values()), None)
        self._append_timer = None if oldest is None else self._runtime.wheel.schedule(oldest, self._end_appends)

    def _end_appends(self) -> None:
        now_ms = self._runtime.clock.now_ms()
        late = [append_id for append_id, deadline_ms in self._append_deadlines.items() if deadline_ms <= now_ms]
        for append_id in late:
            del self._append_deadlines[append_id]
        self._time_appends()
        for append_id in late:
            self._report(AppendFailed(append_id, ErrorCode.REQUEST_TIMED_OUT))

    def _refuse_later(self, append_id: int) -> None:
        if self.is_unloaded:
            return

        def refuse() -> None:
            del self._refusals[append_id]
            self._report(AppendFailed(append_id, ErrorCode.NOT_ENOUGH_REPLICAS))

        self._refusals[append_id] = self._runtime.schedule(TOO_FEW_REPLICAS_MS, refuse)

    def _report(self, event: AppendCompleted | AppendFailed, *, in_next_step: bool = False) -> None:
        """`in_next_step`: unless another event comes first, which then takes it along."""
        if self.is_unloaded:
            return
        if in_next_step:
            self._queue.append(event)
            self._runtime.soon(self._take_next)
        else:
            self.handle(event)

    def _take_next(self) -> None:
        if not self._stepping:
            self._take_queued()

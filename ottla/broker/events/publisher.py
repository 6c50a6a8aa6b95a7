"""Events from the moment a fact is reported to the record in `ottla.events`.

`observe` is called in the middle of a coordinator's step. It only puts the fact aside, with the time of the step, in a
buffer with a bound: when that is full, events are dropped and counted, and the count is an event itself. Everything
that takes time (making JSON of facts, building batches, appending) is done later, in slices that hold up no request
for long.

An event goes to the partition of its key, as long as this broker leads that; else to one of those that it does lead, so
that a broker need not wait for another to publish what it knows. One that leads none sends its events to one that does.
Readers order events by `broker`, `run` and `seq`.

What was not confirmed because a leader changed, or did not answer, is sent again, to the leader of that moment. It may
be there twice, with the same `run` and `seq`.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from ottla.broker.coordinators.observers import log_fact
from ottla.broker.events.broker_facts import BrokerStarted, CoordinatorMoved, Dropped, LeaderChanged
from ottla.broker.events.event_batch import EventBatch
from ottla.broker.events.events_topic import EventsTopic, Way
from ottla.broker.events.follower_lag import FollowerLag
from ottla.broker.events.forwarding import Forwarding
from ottla.broker.events.leadership import last_leader, leadership_facts
from ottla.broker.events.samples import Commits, GroupOffsets, HangingTransactions, LagSamples
from ottla.broker.events.schema import EVENTS_TOPIC, Fact, build_event, key_of
from ottla.broker.replicas.partition_ends import EndsOfPartitions
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.runtime import Runtime
from ottla.cluster.image import INTERNAL_TOPICS, MetadataImage
from ottla.cluster.updates import ImageUpdate
from ottla.coordinator.durable_state import LoggedOffset
from ottla.coordinator.facts import Fact as GroupFact
from ottla.coordinator.facts import OffsetsCommitted
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.log import AppendInfo
from ottla.timer.wheel import TimerEntry

# A slice takes some two milliseconds.
EVENTS_PER_SLICE: Final = 400
# Batches on their way to the high watermark; while there are more, events wait in the buffer.
BATCHES_IN_FLIGHT_MAX: Final = 16
# The two clocks are read one after the other, in whole milliseconds: so much they may differ by chance.
CLOCKS_APART_MS: Final = 1


# Another leader, or this one a little later, may take what was refused so.
SENT_AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class _Unsent(NamedTuple):
    """Events that may not be in the topic, and the partition that they were for."""

    batch: EventBatch
    partition: int


class LoadedPartition(Protocol):
    """A partition of a coordinator topic that has been loaded."""

    @property
    def topic(self) -> str: ...

    index: int
    leader_epoch: int
    began_ms: int


class Publisher:
    """It takes facts from the beginning, and writes from `start`, when the broker serves, to `stop`, after which there
    are no more facts."""

    def __init__(
        self,
        runtime: Runtime,
        replicas: ReplicaManager,
        ends: EndsOfPartitions,
        topic: EventsTopic,
        forwarding: Forwarding,
        committed_offsets: Callable[[], Iterable[GroupOffsets]],
        *,
        admin_url: str,
    ) -> None:
        """`committed_offsets` gives each group that is served here, and what it has committed."""
        config = runtime.config
        self._runtime = runtime
        self._replicas = replicas
        self._ends = ends
        self._topic = topic
        self._forwarding = forwarding
        self._committed_offsets = committed_offsets
        self._ignored = tuple(prefix for prefix in config.ottla_events_ignored_groups.split(",") if prefix)
        self._buffer_max = config.ottla_events_buffer_max
        # With the time of the step that reported each, by the clock that is never set.
        self._buffer: deque[tuple[int, Fact]] = deque()
        # They count for the bound of the buffer.
        self._unsent: deque[_Unsent] = deque()
        self._unsent_count = 0
        self._commits = Commits(self._buffer_max)
        self._lag, self._follower_lag = LagSamples(), FollowerLag()
        self._hanging = HangingTransactions(config.transaction_max_timeout_ms)
        # Of partitions of coordinator topics that are led here: who led them before.
        self._former_coordinators: dict[tuple[str, int], int | None] = {}
        # Since the last event that reported it, and since the start.
        self._dropped = 0
        self.dropped_total = 0
        self.published_total = 0
        self._run = runtime.broker_clock.wall_ms()
        self._seq = 0
        now_ms = runtime.broker_clock.now_ms()
        self._wall_ahead_ms = self._run - now_ms
        self._in_flight = 0
        self._flushing: TimerEntry | None = None
        # While it is true, nothing more needs to be done for what is in the buffer.
        self._flush_is_due = True
        self._sampling: TimerEntry | None = None
        self._put(BrokerStarted(admin_url=admin_url or None), now_ms)

    def start(self) -> None:
        self._flush_later(self._runtime.broker_clock.now_ms())
        self._sample_later()

    def stop(self) -> None:
        self._stop_timers()
        self.write_out()
        self._forwarding.stop()

    def abandon(self) -> None:
        """Stops as a killed process does: what waits is lost."""
        self._stop_timers()
        self._forwarding.stop()

    def write_out(self) -> None:
        """Appends what waits, as far as this broker leads a partition of the topic."""
        self._sum_up_commits(self._runtime.broker_clock.now_ms())
        while (self._buffer or self._unsent) and self._write_slice():
            pass

    def _stop_timers(self) -> None:
        for timer in (self._sampling, self._flushing):
            if timer is not None:
                timer.cancel()
        self._flush_is_due = True

    # What is published.

    def observe(self, fact: GroupFact, now_ms: int) -> None:
        """A fact of a coordinator here, as it happens, with the time of the step that reports it."""
        if getattr(fact, "group_id", "").startswith(self._ignored):
            return
        if isinstance(fact, OffsetsCommitted):
            self._commits.add(fact)
        else:
            self._put(fact, now_ms)

    def on_metadata_update(self, before: MetadataImage, update: ImageUpdate) -> None:
        now_ms = self._runtime.broker_clock.now_ms()
        for fact in leadership_facts(before, update, self._runtime.node_id):
            self._put(fact, now_ms)
            if isinstance(fact, LeaderChanged) and fact.topic in INTERNAL_TOPICS:
                former = last_leader(before.partition(fact.topic, fact.partition))
                self._former_coordinators[fact.topic, fact.partition] = former

    def coordinator_loaded(self, hosted: LoadedPartition, group_count: int) -> None:
        """A partition of a coordinator topic is served here from now on, with so many groups."""
        now_ms = self._runtime.broker_clock.now_ms()
        self._put(
            CoordinatorMoved(
                coordinator_topic=hosted.topic,
                partition=hosted.index,
                coordinator=self._runtime.node_id,
                previous_coordinator=self._former_coordinators.get((hosted.topic, hosted.index)),
                coordinator_epoch=hosted.leader_epoch,
                groups=group_count,
                load_ms=self._runtime.clock.now_ms() - hosted.began_ms,
            ),
            now_ms,
        )

    def _put(self, fact: Fact, now_ms: int) -> None:
        if len(self._buffer) + self._unsent_count >= self._buffer_max:
            self._drop(1)
            return
        self._buffer.append((now_ms, fact))
        if not self._flush_is_due:
            self._flush_later(now_ms)

    def _drop(self, count: int) -> None:
        self._dropped += count
        self.dropped_total += count

    @property
    def buffered(self) -> int:
        """Events that wait to be written."""
        return len(self._buffer) + self._unsent_count

    # Samples.

    def _sample_later(self) -> None:
        interval_ms = self._runtime.config.ottla_events_sample_interval_ms
        self._sampling = self._runtime.schedule(interval_ms, self._sample)

    def _sample(self) -> None:
        now_ms = self._runtime.broker_clock.now_ms()
        self._sample_later()
        self._sum_up_commits(now_ms)
        for fact in self._follower_lag.sample(self._replicas):
            self._put(fact, now_ms)
        for hanging in self._hanging.sample(self._replicas, self._runtime.broker_clock.wall_ms()):
            log_fact(self._runtime.log, hanging, now_ms, self._runtime.broker_clock.wall_ms())
            self._put(hanging, now_ms)
        sampled = (each for each in self._committed_offsets() if not each[0].startswith(self._ignored))
        for sample in self._lag.sample(sampled, self._end_of):
            self._put(sample, now_ms)

    def _sum_up_commits(self, now_ms: int) -> None:
        self._drop(self._commits.lost)
        self._commits.lost = 0
        for fact in self._commits.take():
            self._put(fact, now_ms)

    def _end_of(self, topic: str, partition: int, logged: LoggedOffset) -> int | None:
        ends = self._ends.find(topic, partition, is_transactional=logged.is_transactional)
        return None if ends is None else ends.end

    # Writing.

    def _flush_later(self, now_ms: int) -> None:
        self._flush_is_due = True
        runtime = self._runtime
        if runtime.clock is not runtime.broker_clock:
            # Facts have broker time, and are written in transport time.
            now_ms = runtime.clock.now_ms()
        deadline_ms = now_ms + runtime.config.ottla_events_flush_interval_ms
        self._flushing = runtime.wheel.schedule(deadline_ms, self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        if not self._runtime.is_serving:
            return
        if self._write_slice() and len(self._buffer) >= EVENTS_PER_SLICE:
            self._flush_is_due = True
            self._runtime.soon(self._flush)
        elif self._buffer or self._unsent:
            self._flush_later(self._runtime.broker_clock.now_ms())

    def _write_slice(self) -> bool:
        """False if nothing can be written now: the topic is not there yet, or its partitions are slow."""
        match self._topic.way():
            case Way.HERE if self._in_flight < BATCHES_IN_FLIGHT_MAX:
                self._append_slice()
                return True
            case Way.ELSEWHERE if not self._forwarding.is_busy:
                self._forward_slice()
                return True
            case _:
                return False

    def _append_slice(self) -> None:
        if self._unsent:
            batch, index = self._take_unsent()
            self._append(self._topic.partition_instead_of(index), batch)
            return
        batches: dict[int, EventBatch] = {}
        self._take_facts(lambda key: batches.setdefault(self._topic.partition_for(key), EventBatch()))
        for index, batch in batches.items():
            self._append(index, batch)

    def _forward_slice(self) -> None:
        batch, index = self._take_unsent() if self._unsent else _Unsent(EventBatch(), 0)
        if not len(batch):
            self._take_facts(lambda _: batch)
        if len(batch):
            self._forwarding.send(batch.build(), lambda error: self._sent(_Unsent(batch, index), error))

    def _take_unsent(self) -> _Unsent:
        unsent = self._unsent.popleft()
        self._unsent_count -= len(unsent.batch)
        return unsent

    def _take_facts(self, batch_of: Callable[[str], EventBatch]) -> None:
        """Writes the next ones into the batches of their keys."""
        node_id, run, ahead_ms = self._runtime.node_id, self._run, self._wall_clock_ahead_ms()
        # Neighbours are often about the same group.
        places: dict[str, tuple[EventBatch, bytes]] = {}
        for mono_ms, fact in self._next_facts():
            key = key_of(fact, node_id)
            place = places.get(key)
            if place is None:
                place = places[key] = (batch_of(key), key.encode("utf-8", "replace"))
            wall_ms = mono_ms + ahead_ms
            batch, key_bytes = place
            batch.add(wall_ms, key_bytes, build_event(fact, wall_ms, mono_ms, node_id, run, self._seq))
            self._seq += 1

    def _next_facts(self) -> list[tuple[int, Fact]]:
        count = min(EVENTS_PER_SLICE, len(self._buffer))
        facts = [self._buffer.popleft() for _ in range(count)]
        if self._dropped:
            facts.append((self._runtime.broker_clock.now_ms(), Dropped(count=self._dropped)))
            self._dropped = 0
        return facts

    def _wall_clock_ahead_ms(self) -> int:
        """Of the clock that is never set."""
        clock = self._runtime.broker_clock
        ahead_ms = clock.wall_ms() - clock.now_ms()
        if abs(ahead_ms - self._wall_ahead_ms) > CLOCKS_APART_MS:
            self._wall_ahead_ms = ahead_ms
        return self._wall_ahead_ms

    def _append(self, index: int, batch: EventBatch) -> None:
        self._in_flight += 1

        def done(_: AppendInfo | None, error: KafkaError | None) -> None:
            self._in_flight -= 1
            self._sent(_Unsent(batch, index), error)

        self._replicas.append_records(EVENTS_TOPIC, index, memoryview(batch.build()), done)

    def _sent(self, unsent: _Unsent, error: KafkaError | None) -> None:
        """With an error, they may not be in the topic."""
        count = len(unsent.batch)
        if error is None:
            self.published_total += count
            return
        if error.code in SENT_AGAIN and len(self._buffer) + self._unsent_count + count <= self._buffer_max:
            self._unsent.append(unsent)
            self._unsent_count += count
            if not self._flush_is_due:
                self._flush_later(self._runtime.broker_clock.now_ms())
            return
        self._drop(count)
        self._runtime.log.warning("events were lost", count=count, why=str(error))

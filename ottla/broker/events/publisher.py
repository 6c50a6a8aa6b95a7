"""Events from the moment a fact is told to the record in `ottla.events`.

`observe` is called in the middle of a coordinator's step. It only puts the fact aside, in a buffer with a bound: when
that is full, events are dropped and counted, and the count is an event itself. Everything that takes time (making JSON
of facts, building batches, appending) is done later, in slices short enough for everybody else.

An event goes to the partition of its key, as long as this broker leads that; else to one of those that it does lead, so
that a broker never waits for another to tell what it knows. Readers order events by `broker`, `run` and `seq`.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ottla.broker.events.cluster_facts import ClusterFact, CoordinatorMoved, LeaderChanged
from ottla.broker.events.events_topic import EventsTopic
from ottla.broker.events.follower_lag import FollowerLag
from ottla.broker.events.leadership import last_leader, leadership_told
from ottla.broker.events.samples import Commits, lag_samples
from ottla.broker.events.schema import EVENTS_TOPIC, TYPES, Envelope, build_event, fields_of, key_of
from ottla.cluster.image import CONSUMER_OFFSETS, MetadataImage
from ottla.cluster.updates import ImageUpdate
from ottla.coordinator.facts import Fact, OffsetsCommitted
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.record import Record, build_batch
from ottla.storage.log import AppendInfo
from ottla.timer.wheel import TimerEntry

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.group_partition import GroupPartition
    from ottla.broker.group_service import GroupService

# A slice takes some two milliseconds.
EVENTS_PER_SLICE: Final = 100
# Batches on their way to the high watermark; while there are more, events wait in the buffer.
BATCHES_IN_FLIGHT_MAX: Final = 16

DROPPED: Final = "dropped"
BROKER_STARTED: Final = "broker_started"


Told: TypeAlias = Fact | ClusterFact | tuple[str, Mapping[str, Any]]
"""A fact, or the type and fields of an event that no fact stands for."""


class _Noted(NamedTuple):
    wall_ms: int
    mono_ms: int
    told: Told


class Publisher:
    """It listens from the beginning, and writes from `start`, when the broker serves, to `stop`, when no more facts are
    told."""

    def __init__(self, broker: "Broker", *, is_alone: bool) -> None:
        """`is_alone`: no other broker will ever be in its cluster."""
        config = broker.config
        self._broker = broker
        self._topic = EventsTopic(broker, is_alone=is_alone)
        self._ignored = tuple(prefix for prefix in config.ottla_events_ignored_groups.split(",") if prefix)
        self._buffer_max = config.ottla_events_buffer_max
        self._buffer: deque[_Noted] = deque()
        self._commits = Commits(self._buffer_max)
        self._follower_lag = FollowerLag()
        # Who led the partitions of `__consumer_offsets` that are led here, before.
        self._former_coordinators: dict[int, int | None] = {}
        self._dropped = 0
        self._run = broker.clock.wall_ms()
        self._seq = 0
        self._in_flight = 0
        self._flushing: TimerEntry | None = None
        # While it is true, nothing more needs to be done for what is in the buffer.
        self._flush_is_due = True
        self._sampling: TimerEntry | None = None
        self.note(BROKER_STARTED, {})

    def start(self) -> None:
        self._flush_later()
        self._sample_later()

    def stop(self) -> None:
        for timer in (self._sampling, self._flushing):
            if timer is not None:
                timer.cancel()
        self._flush_is_due = True
        self.write_out()

    def write_out(self) -> None:
        """Appends what waits, as far as this broker leads a partition of the topic."""
        self._sum_up_commits()
        while self._buffer and self._append_slice():
            pass

    # What is told.

    def listen_to(self, groups: "GroupService") -> None:
        groups.observers.append(self.observe)
        groups.when_loaded.append(self._loaded)

    def follow(self, before: MetadataImage, update: ImageUpdate) -> None:
        """The metadata has changed."""
        for fact in leadership_told(before, update, self._broker.node_id):
            self._put(fact)
            if isinstance(fact, LeaderChanged) and fact.topic == CONSUMER_OFFSETS:
                former = last_leader(before.partition(CONSUMER_OFFSETS, fact.partition))
                self._former_coordinators[fact.partition] = former

    def _loaded(self, hosted: "GroupPartition") -> None:
        self._put(
            CoordinatorMoved(
                hosted.index,
                coordinator=self._broker.node_id,
                previous_coordinator=self._former_coordinators.get(hosted.index),
                coordinator_epoch=hosted.leader_epoch,
                groups=len(hosted.coordinator.groups),
                load_ms=self._broker.clock.now_ms() - hosted.began_ms,
            )
        )

    def observe(self, fact: Fact) -> None:
        if getattr(fact, "group_id", "").startswith(self._ignored):
            return
        if isinstance(fact, OffsetsCommitted):
            self._commits.add(fact)
        else:
            self._put(fact)

    def note(self, event_type: str, fields: Mapping[str, Any]) -> None:
        """An event that no fact of the coordinator stands for."""
        self._put((event_type, fields))

    def _put(self, told: Told) -> None:
        if len(self._buffer) >= self._buffer_max:
            self._dropped += 1
            return
        clock = self._broker.clock
        self._buffer.append(_Noted(clock.wall_ms(), clock.now_ms(), told))
        if not self._flush_is_due:
            self._flush_later()

    # Samples.

    def _sample_later(self) -> None:
        deadline_ms = self._broker.clock.now_ms() + self._broker.config.ottla_events_sample_interval_ms
        self._sampling = self._broker.wheel.schedule(deadline_ms, self._sample)

    def _sample(self) -> None:
        self._sample_later()
        self._sum_up_commits()
        for fact in self._follower_lag.sample(self._broker.replicas):
            self._put(fact)
        groups = self._broker.replicas.groups
        if groups is not None:
            self._sample_lag(groups)

    def _sample_lag(self, groups: "GroupService") -> None:
        told_of = (
            (group_id, offsets)
            for group_id, offsets in groups.committed_offsets()
            if not group_id.startswith(self._ignored)
        )
        for sample in lag_samples(told_of, self._end_of):
            self.note(sample.type, sample.fields)

    def _sum_up_commits(self) -> None:
        self._dropped += self._commits.lost
        self._commits.lost = 0
        for sample in self._commits.take():
            self.note(sample.type, sample.fields)

    def _end_of(self, topic: str, partition: int) -> int | None:
        replica = self._broker.replicas.find(topic, partition)
        return None if replica is None else replica.high_watermark

    # Writing.

    def _flush_later(self) -> None:
        self._flush_is_due = True
        deadline_ms = self._broker.clock.now_ms() + self._broker.config.ottla_events_flush_interval_ms
        self._flushing = self._broker.wheel.schedule(deadline_ms, self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        if not self._broker.is_serving:
            return
        if self._append_slice() and len(self._buffer) >= EVENTS_PER_SLICE:
            self._flush_is_due = True
            self._broker.soon(self._flush)
        elif self._buffer:
            self._flush_later()

    def _append_slice(self) -> bool:
        """False if nothing can be appended now: the topic is not there yet, or its partitions are slow."""
        if self._in_flight >= BATCHES_IN_FLIGHT_MAX or not self._topic.is_writable():
            return False
        by_partition: dict[int, list[Record]] = {}
        for record in self._next_records():
            by_partition.setdefault(self._topic.partition_for(record.key or b""), []).append(record)
        for index, records in by_partition.items():
            self._append(index, records)
        return True

    def _next_records(self) -> Iterator[Record]:
        clock = self._broker.clock
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            yield self._record(_Noted(clock.wall_ms(), clock.now_ms(), (DROPPED, {"count": dropped})))
        for _ in range(min(EVENTS_PER_SLICE, len(self._buffer))):
            yield self._record(self._buffer.popleft())

    def _record(self, noted: _Noted) -> Record:
        told = noted.told
        event_type, fields = told if isinstance(told, tuple) else (TYPES[type(told)], fields_of(told))
        node_id = self._broker.node_id
        envelope = Envelope(event_type, noted.wall_ms, noted.mono_ms, node_id, self._run, self._seq)
        self._seq += 1
        value = build_event(envelope, fields)
        return Record(timestamp=noted.wall_ms, key=key_of(fields, node_id), value=value)

    def _append(self, index: int, records: list[Record]) -> None:
        count = len(records)
        self._in_flight += 1

        def done(_: AppendInfo | None, error: KafkaError | None) -> None:
            self._in_flight -= 1
            if error is not None:
                self._dropped += count
                self._broker.log.warning("events were lost", count=count, why=str(error))

        self._broker.replicas.append_records(EVENTS_TOPIC, index, memoryview(build_batch(records)), done)

"""Metrics of lag over time: its age, records that were deleted unread, and a verdict on each group.

Samples are taken at scrapes, and not more often than `ottla.events.sample.interval.ms`. The log of a partition without
a replica here is not read: its lag has an age once the ring of ends goes back so far.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain

from ottla.broker.admin.metrics.exposition import Sample
from ottla.broker.admin.metrics.group_labels import GroupLabels
from ottla.broker.admin.metrics.group_source import GroupSource
from ottla.broker.admin.metrics.lag_history import SAMPLES, CommitSample, EndRing, Verdict, judge
from ottla.broker.admin.metrics.source import Budget, Samples
from ottla.broker.replicas.partition_ends import EndsOfPartitions, ReadableOffsets
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.runtime import LoopRuntime
from ottla.coordinator.durable_state import LoggedOffset
from ottla.protocol.errors import KafkaError
from ottla.replication.partition import Partition

# Reads of the disk under way, for records that are older than the rings.
READS_MAX = 8

Place = tuple[str, str, int]
"""A group, a topic and a partition."""


class _PlaceHistory:
    """What is remembered of a group and a partition from sample to sample."""

    __slots__ = ("commits", "is_reading", "lost", "read_offset", "start", "written_ms")

    def __init__(self, log_start_offset: int) -> None:
        self.commits: deque[CommitSample] = deque(maxlen=SAMPLES)
        # Up to where records were counted as lost. What was deleted before is not counted: perhaps it was read.
        self.start = log_start_offset
        self.lost = 0
        # The offset whose time was read from the log, or is; `written_ms` is None until it is known.
        self.read_offset = -1
        self.written_ms: int | None = None
        self.is_reading = False

    def count_lost(self, offset: int, log_start_offset: int) -> None:
        self.lost += max(0, log_start_offset - max(offset, self.start))
        self.start = max(self.start, log_start_offset)


class LagSource:
    def __init__(
        self,
        runtime: LoopRuntime,
        replicas: ReplicaManager,
        ends: EndsOfPartitions,
        groups: GroupSource,
        names: GroupLabels,
    ) -> None:
        self._runtime = runtime
        self._replicas = replicas
        self._ends = ends
        self._groups = groups
        self._names = names
        self._topics = Budget(runtime.config.ottla_metrics_lag_max, names.of_topic)
        # Those of which samples are kept. That takes memory and time of each.
        self._sampled = Budget(runtime.config.ottla_metrics_lag_max, lambda *_place: "")
        self._sampled_ms: int | None = None
        self._reads = 0
        self._rings: dict[tuple[str, int], EndRing] = {}
        self._places: dict[Place, _PlaceHistory] = {}
        # As of the last sample.
        self._ages_ms: dict[tuple[str, str], int] = {}
        self._lost: Counter[tuple[str, str]] = Counter()
        self._verdicts: dict[str, Verdict] = {}
        self.families: Mapping[str, Callable[[], Samples]] = {
            "ottla_group_lag_seconds": self._ages,
            "ottla_group_records_lost_total": self._losses,
            "ottla_group_verdict": lambda: (
                (names.of(group, verdict=verdict.word), 1) for group, verdict in self._verdicts.items()
            ),
        }

    def prepare(self) -> Iterator[None]:
        now_ms = self._runtime.clock.now_ms()
        interval_ms = self._runtime.config.ottla_events_sample_interval_ms
        if self._sampled_ms is not None and now_ms - self._sampled_ms < interval_ms:
            return
        self._sampled_ms = now_ms
        yield from self._add_ends(now_ms)
        yield from self._sample(now_ms)

    def _add_ends(self, now_ms: int) -> Iterator[None]:
        before, self._rings = self._rings, {}
        of_others = [(key, ends.high_watermark) for key, ends in self._ends.of_other_brokers().items()]
        of_ours = (((each.topic, each.index), each.high_watermark) for each in list(self._replicas))
        for key, end in chain(of_ours, of_others):
            yield
            ring = self._rings[key] = before.get(key) or EndRing()
            ring.add(now_ms, end)

    def _sample(self, now_ms: int) -> Iterator[None]:
        members = {group.group_id: bool(group.members) for _, group in self._groups.rows}
        places: dict[Place, _PlaceHistory] = {}
        ages: dict[tuple[str, str], int] = {}
        lost: Counter[tuple[str, str]] = Counter()
        verdicts: dict[str, Verdict] = {}
        for group_id, offsets in self._groups.offsets():
            for (topic, index), logged in list(offsets.items()):
                yield
                ends = self._ends.find(topic, index, is_transactional=logged.is_transactional)
                if ends is None or group_id not in members:
                    continue
                place = group_id, topic, index
                if self._sampled.labels(*place) is None:
                    continue
                history = self._places.get(place) or _PlaceHistory(ends.log_start_offset)
                places[place] = history
                history.count_lost(logged.committed.offset, ends.log_start_offset)
                lost[group_id, topic] += history.lost
                age_ms = self._age_ms(history, place, max(logged.committed.offset, ends.log_start_offset), ends, now_ms)
                if age_ms is not None:
                    ages[group_id, topic] = max(ages.get((group_id, topic), 0), age_ms)
                verdict = self._judged(history, logged, ends, has_members=members[group_id])
                verdicts[group_id] = max(verdict, verdicts.get(group_id, verdict))
        self._sampled.end_pass()
        self._places, self._ages_ms, self._lost, self._verdicts = places, ages, lost, verdicts

    def _judged(
        self, history: _PlaceHistory, logged: LoggedOffset, ends: ReadableOffsets, *, has_members: bool
    ) -> Verdict:
        committed = logged.committed
        lag = ends.lag(committed.offset)
        wall_ms = self._runtime.broker_clock.wall_ms()
        history.commits.append(CommitSample(wall_ms, committed.offset, lag, committed.commit_timestamp_ms))
        return judge(history.commits, has_members=has_members)

    # The age of the oldest record that is not read.

    def _age_ms(
        self, history: _PlaceHistory, place: Place, offset: int, ends: ReadableOffsets, now_ms: int
    ) -> int | None:
        """`offset` is that of the oldest unread record."""
        if offset >= ends.end:
            return 0
        _, topic, index = place
        ring = self._rings.get((topic, index))
        since_ms = None if ring is None else ring.unread_since_ms(offset)
        if since_ms is not None:
            return now_ms - since_ms
        replica = self._replicas.find(topic, index)
        may_read = not history.is_reading and self._reads < READS_MAX
        if replica is not None and history.read_offset != offset and may_read:
            self._read(history, offset, replica)
        if history.read_offset != offset or history.written_ms is None:
            return None
        return max(self._runtime.broker_clock.wall_ms() - history.written_ms, 0)

    def _read(self, history: _PlaceHistory, offset: int, replica: Partition) -> None:
        """The timestamp of the batch at the offset, in a thread."""
        log, upper_bound = replica.log, replica.high_watermark
        found: list[int | None] = []
        history.read_offset, history.written_ms, history.is_reading = offset, None, True
        self._reads += 1

        def work() -> None:
            # What is deleted before it is read, or damaged, has no age at this offset.
            with suppress(KafkaError):
                found.append(log.timestamp_at(offset, upper_bound))

        def done() -> None:
            self._reads -= 1
            history.is_reading = False
            history.written_ms = found[0] if found else None

        self._runtime.offload(work, done)

    # Samples.

    def _ages(self) -> Iterator[Sample | None]:
        for (group, topic), age_ms in self._ages_ms.items():
            text = self._topics.labels(group, topic)
            yield None if text is None else (text, age_ms / 1000)
        self._topics.end_pass()

    def _losses(self) -> Iterator[Sample]:
        for (group, topic), count in self._lost.items():
            if count:
                yield self._names.of_topic(group, topic), count

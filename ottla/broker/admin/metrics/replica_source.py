"""Metrics of topics, partitions, replication and the metadata. A partition is exported by its leader alone."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ottla.broker.admin.metrics.exposition import Sample, joined, labels
from ottla.broker.admin.metrics.source import OTHER, Budget, Samples
from ottla.broker.admin.probe import HealthProbe
from ottla.broker.metadata.controller_role import ControllerRole
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.runtime import LoopRuntime
from ottla.cluster.image import NO_LEADER, MetadataImage
from ottla.replication.fetch_session_cache import FetchSessionCache
from ottla.replication.partition import Partition, TopicTraffic
from ottla.replication.replica_progress import NEVER_MS, UNKNOWN_OFFSET, ReplicaProgress


def topic_label(topic: str) -> str:
    return labels(topic=topic)


def partition_label(topic: str, index: int) -> str:
    return labels(topic=topic, partition=index)


class OtherTopics:
    """The traffic of topics without series of their own, together. A topic that is deleted, or gets series of its own,
    leaves behind what it had: a counter that fell would be taken for one that began again, and the rest of it for news.
    """

    def __init__(self) -> None:
        self.traffic = TopicTraffic()
        self.has_any = False
        """Whether there has been such a topic."""
        # What is counted already. A topic that is deleted and created again has another object.
        self._counted: dict[TopicTraffic, tuple[int, int, int, int]] = {}
        self._met: dict[TopicTraffic, tuple[int, int, int, int]] = {}

    def count(self, traffic: TopicTraffic) -> None:
        self.has_any = True
        self.traffic.add(traffic, self._counted.get(traffic, (0, 0, 0, 0)))
        self._met[traffic] = traffic.counts

    def end_pass(self) -> None:
        self._counted, self._met = self._met, {}


class ReplicaSource:
    def __init__(
        self,
        runtime: LoopRuntime,
        replicas: ReplicaManager,
        controller: ControllerRole,
        fetch_sessions: FetchSessionCache,
        probe: HealthProbe,
    ) -> None:
        self._runtime = runtime
        self._replicas = replicas
        self._controller = controller
        self._probe = probe
        config = runtime.config
        self._topics = Budget(config.ottla_metrics_topics_max, topic_label)
        self._partitions = Budget(config.ottla_metrics_partitions_max, partition_label)
        # As of the last pass: those with series of their own, the others, and counts.
        self.rows: list[tuple[str, Partition]] = []
        self._others: list[Partition] = []
        self.counts: Counter[str] = Counter()
        self._topic_rows: list[tuple[str, TopicTraffic]] = []
        self._other_topics = OtherTopics()
        # Of an image: an image does not change.
        self._offline_of: MetadataImage | None = None
        self._offline = 0
        self._fetch_sessions = fetch_sessions
        self.families: Mapping[str, Callable[[], Samples]] = {
            **self._topic_families(),
            **self._partition_families(),
            **self._count_families(),
            **self._cluster_families(),
        }

    def _topic_families(self) -> dict[str, Callable[[], Samples]]:
        return {
            "ottla_topic_records_in_total": lambda: self.traffic(lambda each: [("", each.records_in)]),
            "ottla_topic_bytes_in_total": lambda: self.traffic(lambda each: [("", each.bytes_in)]),
            "ottla_topic_bytes_out_total": lambda: self.traffic(
                lambda each: [('to="consumer"', each.bytes_to_consumers), ('to="follower"', each.bytes_to_followers)]
            ),
        }

    def _partition_families(self) -> dict[str, Callable[[], Samples]]:
        return {
            "ottla_partition_log_start_offset": lambda: self.each(lambda p: p.log.log_start_offset),
            "ottla_partition_high_watermark": lambda: self.each(lambda p: p.high_watermark),
            "ottla_partition_log_end_offset": lambda: self.each(lambda p: p.log.log_end_offset),
            "ottla_partition_last_stable_offset": lambda: self.each(lambda p: p.last_stable_offset),
            "ottla_partition_size_bytes": lambda: self._each_and_other(lambda p: p.log.size_bytes),
            "ottla_partition_segments": lambda: self._each_and_other(lambda p: len(p.log.segments)),
            "ottla_partition_isr": lambda: self.each(lambda p: len(p.isr)),
            "ottla_partition_replicas": lambda: self.each(lambda p: len(p.replicas)),
            "ottla_partition_leader_epoch": lambda: self.each(lambda p: p.leader_epoch),
            "ottla_follower_lag_records": self._follower_lag,
            "ottla_follower_lag_seconds": self._follower_lag_seconds,
        }

    def _count_families(self) -> dict[str, Callable[[], Samples]]:
        counted = {
            "ottla_partitions_under_replicated": "under replicated",
            "ottla_partitions_under_min_isr": "under min isr",
            "ottla_partitions_at_min_isr": "at min isr",
            "ottla_partitions_not_preferred_leader": "not preferred",
        }
        found: dict[str, Callable[[], Samples]] = {name: partial(self._counted, what) for name, what in counted.items()}
        found["ottla_partitions"] = lambda: [(labels(role=r), self.counts[r]) for r in ("leader", "follower")]
        found["ottla_metrics_overflow"] = lambda: [
            (labels(kind="partitions"), self._partitions.overflow),
            (labels(kind="topics"), self._topics.overflow),
        ]
        return found

    def _counted(self, what: str) -> list[Sample]:
        return [("", self.counts[what])]

    def _cluster_families(self) -> dict[str, Callable[[], Samples]]:
        controller, probe, replicas = self._controller, self._probe, self._replicas
        return {
            "ottla_partitions_offline": lambda: [("", self._offline)] if controller.is_controller else [],
            "ottla_isr_changes_total": lambda: [(labels(change=c), n) for c, n in replicas.isr_changes.items()],
            "ottla_leader_changes_total": lambda: [(labels(reason=r), n) for r, n in controller.leader_changes.items()],
            "ottla_log_write_seconds": lambda: [("", replicas.write_times)],
            "ottla_log_flush_seconds": lambda: [("", replicas.flush_times)],
            "ottla_log_failures": lambda: [("", probe.failed_logs)],
            "ottla_log_directory_bytes": self._disk,
            "ottla_fetch_sessions": lambda: [("", len(self._fetch_sessions))],
            "ottla_recent_appends_bytes": lambda: [("", replicas.shared_reads.recent.held_bytes)],
            "ottla_controller_active": lambda: [("", int(controller.is_controller))],
            "ottla_brokers": self._brokers,
            "ottla_retention_deleted_bytes_total": lambda: [("", probe.retention_deleted_bytes)],
            "ottla_compaction_seconds_total": lambda: [("", probe.compaction_ns / 1e9)],
            "ottla_compaction_dirty_ratio_max": self._dirty_ratio,
            "ottla_metadata_store_seconds": lambda: [("", probe.metadata.store_times)],
            "ottla_metadata_apply_lag_seconds": lambda: [("", probe.metadata.apply_lag_ms / 1000)],
            "ottla_metadata_store_errors_total": lambda: [("", probe.store_errors)],
            "ottla_metadata_store_up": lambda: [("", int(probe.store_answers))],
            "ottla_metadata_session_timeout_seconds": lambda: [
                ("", self._runtime.config.broker_session_timeout_ms / 1000)
            ],
            "ottla_metadata_session_remaining_seconds": lambda: [("", probe.session_remaining_ms / 1000)],
        }

    def prepare(self) -> Iterator[None]:
        rows: list[tuple[str, Partition]] = []
        others: list[Partition] = []
        counts: Counter[str] = Counter()
        for partition in list(self._replicas):
            yield
            if not partition.is_leader:
                counts["follower"] += 1
                continue
            _count(partition, counts)
            text = self._partitions.labels(partition.topic, partition.index)
            if text is None:
                others.append(partition)
            else:
                rows.append((text, partition))
        self._partitions.end_pass()
        self.rows, self._others, self.counts = rows, others, counts
        yield from self._look_at_topics()
        image = self._probe.metadata.image
        if self._controller.is_controller and image is not self._offline_of:
            yield from self._count_offline(image)

    def _look_at_topics(self) -> Iterator[None]:
        rows: list[tuple[str, TopicTraffic]] = []
        for topic, traffic in list(self._replicas.traffic.items()):
            yield
            text = self._topics.labels(topic)
            if text is None:
                self._other_topics.count(traffic)
            else:
                rows.append((text, traffic))
        self._topics.end_pass()
        self._other_topics.end_pass()
        self._topic_rows = rows

    def _count_offline(self, image: MetadataImage) -> Iterator[None]:
        offline = 0
        for topic in image.topics.values():
            yield
            offline += sum(state.leader == NO_LEADER for state in topic.partitions)
        self._offline, self._offline_of = offline, image

    # Samples.

    def each(self, value: Callable[[Partition], int]) -> Iterator[Sample]:
        for text, partition in self.rows:
            yield text, value(partition)

    def _each_and_other(self, value: Callable[[Partition], int]) -> Iterator[Sample | None]:
        yield from self.each(value)
        total = 0
        for partition in self._others:
            total += value(partition)
            yield None
        if self._others:
            yield labels(topic=OTHER, partition=OTHER), total

    def traffic(self, values: Callable[[TopicTraffic], list[tuple[str, int]]]) -> Iterator[tuple[str, int]]:
        """Of each topic, and of those without series of their own together."""
        for text, traffic in self._topic_rows:
            for label, value in values(traffic):
                yield joined(text, label), value
        if self._other_topics.has_any:
            for label, value in values(self._other_topics.traffic):
                yield joined(topic_label(OTHER), label), value

    def traffic_of_all(self, value: Callable[[TopicTraffic], int]) -> int:
        """Of the topics that are here and of those that were. In one step: a topic that is deleted in between would be
        missing, or counted twice."""
        replicas = self._replicas
        return value(replicas.traffic_of_deleted) + sum(map(value, replicas.traffic.values()))

    def _follower_lag(self) -> Iterator[Sample | None]:
        for behind in self._followers_behind():
            yield None if behind is None else behind[:2]

    def _follower_lag_seconds(self) -> Iterator[Sample | None]:
        """Since it has last been at the leader's end; unknown of one that has not been there in this term."""
        now_ms = self._runtime.lag_clock.now_ms()
        for behind in self._followers_behind():
            if behind is None:
                yield None
                continue
            text, lag, progress = behind
            if not lag:
                yield text, 0
            elif progress.last_caught_up_ms == NEVER_MS:
                yield None
            else:
                yield text, max(now_ms - progress.last_caught_up_ms, 0) / 1000

    def _followers_behind(self) -> Iterator[tuple[str, int, ReplicaProgress] | None]:
        """Labels, lag in records and progress of each that lags or is out of sync."""
        for text, partition in self.rows:
            leadership = partition.leadership
            if leadership is None or not leadership.followers:
                yield None
                continue
            end_offset = partition.log.log_end_offset
            for follower, progress in list(leadership.followers.items()):
                known = progress.log_end_offset
                lag = end_offset - known if known != UNKNOWN_OFFSET else end_offset - partition.log.log_start_offset
                behind = lag > 0 or follower not in partition.isr
                yield (joined(text, labels(follower=follower)), max(lag, 0), progress) if behind else None

    def _disk(self) -> list[Sample]:
        room = self._probe.disk.room
        if room is None:
            return []
        return [(labels(kind="total"), room.total_bytes), (labels(kind="free"), room.free_bytes)]

    def _dirty_ratio(self) -> list[Sample]:
        ratio = self._probe.dirty_ratio_max
        return [] if ratio is None else [("", ratio)]

    def partitions_by_topic(self) -> Iterator[Sample | None]:
        """From the leader of a topic's first partition."""
        image = self._probe.metadata.image
        for _, partition in self.rows:
            topic = image.topic(partition.topic) if partition.index == 0 else None
            yield None if topic is None else (topic_label(partition.topic), len(topic.partitions))

    def live_brokers(self) -> list[Sample]:
        brokers = self._probe.metadata.image.brokers.values()
        return [("", sum(broker.is_live for broker in brokers))] if self._controller.is_controller else []

    def unclean_elections(self) -> list[Sample]:
        return [("", self._controller.leader_changes["unclean"])]

    def offline_directories(self) -> list[Sample]:
        """A broker has one; it is lost when all its logs are."""
        failed = self._probe.failed_logs
        return [("", int(0 < self.counts["leader"] + self.counts["follower"] <= failed))]

    def _brokers(self) -> list[Sample]:
        if not self._controller.is_controller:
            return []
        states = Counter(broker.state.value for broker in self._probe.metadata.image.brokers.values())
        return [(labels(state=state), count) for state, count in sorted(states.items())]


def _count(partition: Partition, counts: Counter[str]) -> None:
    in_sync, replicas, min_isr = len(partition.isr), partition.replicas, partition.min_isr
    counts["leader"] += 1
    counts["under replicated"] += in_sync < len(replicas)
    counts["under min isr"] += in_sync < min_isr
    counts["at min isr"] += in_sync == min_isr
    counts["not preferred"] += bool(replicas) and replicas[0] != partition.local_id

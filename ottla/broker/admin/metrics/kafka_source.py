"""The figures of the other sources under the names of Kafka's exporters, for /metrics/kafka."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from ottla.broker.admin.metrics.exposition import Sample, labels
from ottla.broker.admin.metrics.group_source import GroupSource
from ottla.broker.admin.metrics.replica_source import ReplicaSource
from ottla.broker.admin.metrics.request_source import RequestSource
from ottla.broker.admin.metrics.source import Budget, Samples
from ottla.broker.admin.metrics.transaction_source import TransactionSource
from ottla.replication.partition import Partition, TopicTraffic

PRODUCE, FETCH = "Produce", "Fetch"
_TRAFFIC = "kafka_server_brokertopicmetrics_"


def consumer_group_label(group: str, topic: str, index: int) -> str:
    return labels(consumergroup=group, topic=topic, partition=index)


class KafkaSource:
    """What it shows of partitions and groups is bounded as theirs is, and prepared with them."""

    def __init__(
        self,
        requests: RequestSource,
        replicas: ReplicaSource,
        groups: GroupSource,
        transactions: TransactionSource,
        lag_max: int,
    ) -> None:
        self._requests = requests
        self._transactions = transactions
        self._replicas = replicas
        self._groups = groups
        self._lags = Budget(lag_max, consumer_group_label)
        # Of the event loop's thread, at the last scrape: its processor time and the time of the clock.
        self._busy_s, self._at_s = time.thread_time(), time.monotonic()
        self._idle: float | None = None
        self.families: Mapping[str, Callable[[], Samples]] = {
            **self._partition_families(),
            **self._group_families(),
            **self._traffic_families(),
            **self._count_families(),
        }

    def prepare(self) -> Iterator[None]:
        busy_s, at_s = time.thread_time(), time.monotonic()
        if at_s > self._at_s:
            self._idle = min(max(1 - (busy_s - self._busy_s) / (at_s - self._at_s), 0.0), 1.0)
        self._busy_s, self._at_s = busy_s, at_s
        return iter(())

    def _partition_families(self) -> dict[str, Callable[[], Samples]]:
        each, topic = self._replicas.each, "kafka_topic_partition"
        return {
            "kafka_topic_partitions": self._replicas.partitions_by_topic,
            f"{topic}_current_offset": lambda: each(lambda p: p.high_watermark),
            f"{topic}_oldest_offset": lambda: each(lambda p: p.log.log_start_offset),
            f"{topic}_in_sync_replica": lambda: each(lambda p: len(p.isr)),
            f"{topic}_leader": lambda: each(lambda p: p.local_id),
            f"{topic}_leader_is_preferred": lambda: each(lambda p: int(p.replicas[:1] == (p.local_id,))),
            f"{topic}_replicas": lambda: each(lambda p: len(p.replicas)),
            f"{topic}_under_replicated_partition": lambda: each(lambda p: int(len(p.isr) < len(p.replicas))),
            "kafka_cluster_partition_underminisr": lambda: each(lambda p: int(len(p.isr) < p.min_isr)),
            "kafka_cluster_partition_atminisr": lambda: each(lambda p: int(len(p.isr) == p.min_isr)),
            "kafka_log_log_size": lambda: each(_size),
        }

    def _group_families(self) -> dict[str, Callable[[], Samples]]:
        return {
            "kafka_consumergroup_current_offset": lambda: self._of_offsets(lambda offset, _lag: offset),
            "kafka_consumergroup_lag": lambda: self._of_offsets(lambda _offset, lag: lag),
            "kafka_consumergroup_current_offset_sum": lambda: self._sums(lambda offset, _lag: offset),
            "kafka_consumergroup_lag_sum": lambda: self._sums(lambda _offset, lag: lag),
            "kafka_consumergroup_members": lambda: (
                (labels(consumergroup=group.group_id), len(group.members)) for _, group in self._groups.rows
            ),
        }

    def _traffic_families(self) -> dict[str, Callable[[], Samples]]:
        return {
            f"{_TRAFFIC}messagesin_total": lambda: self._with_sum(lambda each: each.records_in),
            f"{_TRAFFIC}bytesin_total": lambda: self._with_sum(lambda each: each.bytes_in),
            f"{_TRAFFIC}bytesout_total": lambda: self._with_sum(lambda each: each.bytes_to_consumers),
            f"{_TRAFFIC}totalproducerequests_total": lambda: [("", self._requests.answered(PRODUCE))],
            f"{_TRAFFIC}totalfetchrequests_total": lambda: [("", self._requests.answered(FETCH))],
            f"{_TRAFFIC}failedproducerequests_total": lambda: [("", self._requests.failed(PRODUCE))],
            f"{_TRAFFIC}failedfetchrequests_total": lambda: [("", self._requests.failed(FETCH))],
            "kafka_server_socket_server_metrics_connection_count": self._requests.connections,
        }

    def _count_families(self) -> dict[str, Callable[[], Samples]]:
        replicas = self._replicas
        manager, controller = "kafka_server_replicamanager_", "kafka_controller_kafkacontroller_"
        return {
            "kafka_brokers": replicas.live_brokers,
            f"{manager}leadercount": lambda: [("", replicas.counts["leader"])],
            f"{manager}partitioncount": lambda: [("", replicas.counts["leader"] + replicas.counts["follower"])],
            f"{manager}underreplicatedpartitions": lambda: [("", replicas.counts["under replicated"])],
            f"{manager}underminisrpartitioncount": lambda: [("", replicas.counts["under min isr"])],
            f"{manager}partitionswithlatetransactionscount": self._transactions.late_partitions,
            f"{manager}produceridcount": self._transactions.producer_ids,
            f"{controller}activecontrollercount": replicas.families["ottla_controller_active"],
            f"{controller}offlinepartitionscount": replicas.families["ottla_partitions_offline"],
            "kafka_controller_controllerstats_uncleanleaderelections_total": replicas.unclean_elections,
            "kafka_log_logmanager_offlinelogdirectorycount": replicas.offline_directories,
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": self._idle_ratio,
            "kafka_network_socketserver_networkprocessoravgidle_percent": self._idle_ratio,
        }

    # Samples.

    def _idle_ratio(self) -> list[Sample]:
        return [] if self._idle is None else [("", self._idle)]

    def _with_sum(self, value: Callable[[TopicTraffic], int]) -> Iterator[Sample]:
        """Boards select topics by `topic!=""` and the sum by `topic=""`, which is a series without the label."""
        yield from self._replicas.traffic(lambda each: [("", value(each))])
        yield "", self._replicas.traffic_of_all(value)

    def _of_offsets(self, value: Callable[[int, int], int]) -> Iterator[Sample | None]:
        for group_id, offsets in self._groups.offsets():
            for (topic, index), logged in list(offsets.items()):
                lag = self._groups.lag(topic, index, logged)
                text = None if lag is None else self._lags.labels(group_id, topic, index)
                yield None if text is None or lag is None else (text, value(logged.committed.offset, lag))
        self._lags.end_pass()

    def _sums(self, value: Callable[[int, int], int]) -> Iterator[Sample | None]:
        """By group and topic, of the groups that have series of their own."""
        known = {group.group_id for _, group in self._groups.rows}
        for group_id, offsets in self._groups.offsets():
            sums: Counter[str] = Counter()
            for (topic, index), logged in list(offsets.items()):
                yield None
                lag = self._groups.lag(topic, index, logged) if group_id in known else None
                if lag is not None:
                    sums[topic] += value(logged.committed.offset, lag)
            for topic, total in sums.items():
                yield labels(consumergroup=group_id, topic=topic), total


def _size(partition: Partition) -> int:
    return partition.log.size_bytes

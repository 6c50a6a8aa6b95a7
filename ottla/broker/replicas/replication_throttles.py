"""The quotas of this broker's replication, as its properties and the configs of topics say.

`leader.replication.throttled.rate` and `follower.replication.throttled.rate` are set while a broker runs; the lists of
replicas, PARTITION:BROKER or `*`, are configs of topics. `kafka-reassign-partitions --throttle` sets all four.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.broker.runtime import Runtime
from ottla.cluster.image import MetadataImage
from ottla.cluster.updates import ImageUpdate
from ottla.replication.fetch_session import FetchTarget
from ottla.replication.partition import Partition
from ottla.replication.replication_quota import ReplicationQuota

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
ALL_REPLICAS = "*"


class ReplicationThrottles:
    def __init__(self, runtime: Runtime) -> None:
        config = runtime.config
        samples, sample_ms = config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000
        self.leader = ReplicationQuota(samples=samples, sample_ms=sample_ms)
        """Of what followers are sent."""
        self.follower = ReplicationQuota(samples=samples, sample_ms=sample_ms)
        """Of what is fetched from leaders."""
        self._runtime = runtime
        self._config = config

    def on_metadata_update(self, before: MetadataImage, update: ImageUpdate) -> None:  # noqa: ARG002
        config, leader, follower = self._config, self.leader, self.follower
        leader.bytes_per_s = config.leader_replication_throttled_rate
        follower.bytes_per_s = config.follower_replication_throttled_rate
        for name in update.topics:
            topic = update.image.topic(name)
            configs: Mapping[str, str] = topic.configs if topic is not None else {}
            if leader.is_active or LEADER_REPLICAS in configs:
                self._configure(leader, name, configs.get(LEADER_REPLICAS, ""))
            if follower.is_active or FOLLOWER_REPLICAS in configs:
                self._configure(follower, name, configs.get(FOLLOWER_REPLICAS, ""))

    def leaves_out(self, partition: Partition, follower_id: int) -> bool:
        """Whether a follower gets no records of the partition now (`ReplicaManager.shouldLeaderThrottle`)."""
        quota = self.leader
        return (
            not partition.is_in_sync(follower_id)
            and quota.is_throttled(partition.topic, partition.index)
            and quota.is_exceeded(self._runtime.clock.now_ms())
        )

    def record_sent(self, targets: Iterable[FetchTarget], answers: Iterable[Any]) -> None:
        """Followers in sync count too: they share the network with the others."""
        quota, now_ms = self.leader, self._runtime.clock.now_ms()
        for target, answer in zip(targets, answers, strict=True):
            records = answer.records
            if records and quota.is_throttled(target.topic, target.partition):
                quota.record(size_bytes(records), now_ms)

    def _configure(self, quota: ReplicationQuota, topic: str, replicas: str) -> None:
        if replicas == ALL_REPLICAS:
            quota.throttle_all(topic)
        else:
            quota.throttle(topic, self._partitions_here(replicas))

    def _partitions_here(self, replicas: str) -> list[int]:
        pairs = (each.split(":") for each in replicas.split(",") if each)
        return [int(partition) for partition, broker in pairs if int(broker) == self._runtime.node_id]


def size_bytes(records: memoryview | list[memoryview]) -> int:
    return sum(map(len, records)) if isinstance(records, list) else len(records)

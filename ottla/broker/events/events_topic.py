"""The topic `ottla.events` as its publisher sees it: made when it is missing, written to where this broker leads."""

from enum import Enum, auto
from typing import Final

from ottla.broker.events.schema import EVENTS_TOPIC
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.metadata.topic_admin import TopicAdminManager
from ottla.broker.metadata.topic_plans import NewTopic
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.runtime import Runtime
from ottla.cluster.image import TopicInfo
from ottla.cluster.topics import TopicSpec
from ottla.coordinator.runtime.hashing import partition_for
from ottla.protocol.errors import KafkaError, TopicAlreadyExists

RETRY_MS: Final = 1000
# Brokers of a cluster that starts come one after the other: so long is waited for enough of them to hold the replicas.
FELLOWS_WITHIN_MS: Final = 10_000


class Way(Enum):
    """How events get into the topic now."""

    NONE = auto()
    """It is not there yet, or what this broker is to lead is not ready."""
    HERE = auto()
    ELSEWHERE = auto()
    """This broker leads no partition of it."""


class EventsTopic:
    def __init__(
        self,
        runtime: Runtime,
        metadata: ClusterMetadata,
        replicas: ReplicaManager,
        topics: TopicAdminManager,
        *,
        is_alone: bool,
    ) -> None:
        """`is_alone`: no other broker will ever be in its cluster."""
        self._runtime = runtime
        self._metadata = metadata
        self._replicas = replicas
        self._topics = topics
        self._wait_for_others_ms = 0 if is_alone else FELLOWS_WITHIN_MS
        self._alone_from_ms: int | None = None
        self._led: list[int] = []
        self._partition_count = 0
        self._ask_again_ms = 0

    def way(self) -> Way:
        """To be asked before `partition_for`. Begins to create the topic where there is none, once a second at most."""
        topic = self._metadata.image.topic(EVENTS_TOPIC)
        if topic is None:
            self._create()
            return Way.NONE
        self._partition_count = len(topic.partitions)
        self._led = [index for index in range(self._partition_count) if self._is_led(index)]
        if self._led:
            return Way.HERE
        return Way.NONE if self._is_to_lead(topic) else Way.ELSEWHERE

    def partition_for(self, key: str) -> int:
        """Of those that are led here: that of the key, else one that the key has instead."""
        index = partition_for(key, self._partition_count)
        return index if index in self._led else self._led[partition_for(key, len(self._led))]

    def partition_instead_of(self, index: int) -> int:
        """The partition itself if it is led here, else one that is."""
        return index if index in self._led else self._led[index % len(self._led)]

    def _is_led(self, index: int) -> bool:
        partition = self._replicas.find(EVENTS_TOPIC, index)
        return partition is not None and partition.is_leader

    def _is_to_lead(self, topic: TopicInfo) -> bool:
        return any(partition.leader == self._runtime.node_id for partition in topic.partitions)

    def _create(self) -> None:
        now_ms = self._runtime.clock.now_ms()
        if now_ms < self._ask_again_ms:
            return
        config = self._runtime.config
        wanted, there = config.ottla_events_replication_factor, len(self._metadata.image.brokers)
        if self._alone_from_ms is None:
            self._alone_from_ms = now_ms + self._wait_for_others_ms
        if there < wanted and now_ms < self._alone_from_ms:
            return
        self._ask_again_ms = now_ms + RETRY_MS
        factor = min(wanted, there)
        spec = TopicSpec(EVENTS_TOPIC, config.ottla_events_num_partitions, factor)
        configs = {"cleanup.policy": "delete", "retention.ms": str(config.ottla_events_retention_ms)}
        self._runtime.spawn(self._create_as(NewTopic(spec, configs)), f"creation of {EVENTS_TOPIC}")

    async def _create_as(self, topic: NewTopic) -> None:
        for outcome in await self._topics.create([topic]):
            if isinstance(outcome, KafkaError) and not isinstance(outcome, TopicAlreadyExists):
                self._runtime.log.warning("the topic of events could not be created", why=str(outcome))

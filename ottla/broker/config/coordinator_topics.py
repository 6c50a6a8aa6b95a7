"""The topics in which coordinators keep their state, and how this broker creates each of them.

They are internal topics: clients can read them and not write, create, grow or delete them (§3.6). One more coordinator
adds its topic to `COORDINATOR_TOPICS`, and the broker creates it when it is first needed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.broker.config.server import ServerConfig
from ottla.cluster.image import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.cluster.topics import TopicSpec

OFFSETS_MIN_INSYNC_REPLICAS: Final = 2


@dataclass(frozen=True)
class CoordinatorTopicSpec:
    """The counts and sizes are those of the properties at the time of the creation."""

    name: str
    partition_count: Callable[[ServerConfig], int]
    """Fixed once the topic exists: it decides in which partition a name is kept."""
    replication_factor: Callable[[ServerConfig], int]
    replication_factor_property: str
    """The factor is applied as it is where this property is set."""
    segment_bytes: Callable[[ServerConfig], int]
    """Smaller segments are compacted and loaded sooner."""
    compression: str
    """Of its batches: `compression.type`."""
    min_insync_replicas: Callable[[ServerConfig], int]
    """At most the replication factor is used."""

    def topic_spec(self, config: ServerConfig, broker_count: int) -> TopicSpec:
        """Unlike Kafka's, its replication factor is bounded by the number of brokers while the property is not set: one
        broker is enough for groups."""
        factor = self.replication_factor(config)
        if not config.is_set(self.replication_factor_property):
            factor = min(factor, broker_count)
        return TopicSpec(self.name, self.partition_count(config), factor)

    def configs(self, config: ServerConfig, replication_factor: int) -> Mapping[str, str]:
        return {
            "cleanup.policy": "compact",
            "compression.type": self.compression,
            "segment.bytes": str(self.segment_bytes(config)),
            "min.insync.replicas": str(min(self.min_insync_replicas(config), replication_factor)),
            "unclean.leader.election.enable": "false",
        }


OFFSETS_TOPIC: Final = CoordinatorTopicSpec(
    CONSUMER_OFFSETS,
    partition_count=lambda config: config.offsets_topic_num_partitions,
    replication_factor=lambda config: config.offsets_topic_replication_factor,
    replication_factor_property="offsets.topic.replication.factor",
    segment_bytes=lambda config: config.offsets_topic_segment_bytes,
    compression="producer",
    min_insync_replicas=lambda _: OFFSETS_MIN_INSYNC_REPLICAS,
)
"""Of the group coordinator."""

TRANSACTION_TOPIC: Final = CoordinatorTopicSpec(
    TRANSACTION_STATE,
    partition_count=lambda config: config.transaction_state_log_num_partitions,
    replication_factor=lambda config: config.transaction_state_log_replication_factor,
    replication_factor_property="transaction.state.log.replication.factor",
    segment_bytes=lambda config: config.transaction_state_log_segment_bytes,
    compression="uncompressed",
    min_insync_replicas=lambda config: config.transaction_state_log_min_isr,
)
"""Of the transaction coordinator."""

COORDINATOR_TOPICS: Final[Mapping[str, CoordinatorTopicSpec]] = {
    OFFSETS_TOPIC.name: OFFSETS_TOPIC,
    TRANSACTION_TOPIC.name: TRANSACTION_TOPIC,
}

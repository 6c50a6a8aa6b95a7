"""An immutable picture of the cluster: brokers, topics, partitions and their configs, at one moment.

A change makes a new image; whoever holds the old one goes on seeing what it saw.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

ZERO_ID = bytes(16)
NO_LEADER = -1

# Topics the broker keeps its own state in. Clients can read them and not write, create, grow or delete them (§3.6).
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})

_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


class BrokerInfo(NamedTuple):
    """A broker and where clients reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionInfo(NamedTuple):
    """Who leads a partition and who has it. `leader` is NO_LEADER while nobody does.

    `leader_epoch` counts leaders, `partition_epoch` every change of this state."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicInfo(NamedTuple):
    """A topic; the position of a partition in `partitions` is its index. `configs` holds only the topic's own."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionInfo, ...]
    configs: Mapping[str, str] = _NO_CONFIGS

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)


class MetadataImage(NamedTuple):
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerInfo] = MappingProxyType({})
    topics: Mapping[str, TopicInfo] = MappingProxyType({})
    topics_by_id: Mapping[bytes, TopicInfo] = MappingProxyType({})

    def topic(self, name: str) -> TopicInfo | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicInfo | None:
        return self.topics_by_id.get(topic_id)

    def partition(self, name: str, index: int) -> PartitionInfo | None:
        topic = self.topics.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def partitions(self) -> Iterator[tuple[TopicInfo, int, PartitionInfo]]:
        for topic in self.topics.values():
            for index, partition in enumerate(topic.partitions):
                yield topic, index, partition

    def with_topics(self, changed: Mapping[str, TopicInfo | None]) -> "MetadataImage":
        """The image after topics were created or altered, or (None) deleted."""
        topics = dict(self.topics)
        for name, topic in changed.items():
            if topic is None:
                topics.pop(name, None)
            else:
                topics[name] = topic
        by_id = {topic.topic_id: topic for topic in topics.values()}
        return self._replace(topics=MappingProxyType(topics), topics_by_id=MappingProxyType(by_id))

    def with_broker(self, broker: BrokerInfo) -> "MetadataImage":
        return self._replace(brokers=MappingProxyType({**self.brokers, broker.node_id: broker}))

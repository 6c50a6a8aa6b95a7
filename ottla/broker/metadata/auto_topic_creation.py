"""Topics that are created because clients need them: those of Metadata requests (`auto.create.topics.enable`), and
those of coordinators.

Topics for which one request asks are created together, in few transactions. A client asks again until its topic is
there, so a creation that is under way is not begun twice.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.broker.config.coordinator_topics import COORDINATOR_TOPICS, CoordinatorTopicSpec
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.metadata.topic_admin import TopicAdminManager
from ottla.broker.metadata.topic_plans import NewTopic, PartitionChanges
from ottla.broker.runtime import Runtime
from ottla.cluster.image import CLUSTER_METADATA
from ottla.cluster.topics import PARTITIONS_PER_REQUEST_MAX, TopicSpec
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.security.quota_budgets import MutationQuota

# Some seconds' worth of creations.
IN_FLIGHT_MAX = 1000
# Another broker came first, or the metadata store does not answer.
_PASSING = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.KAFKA_STORAGE_ERROR})


class AutoTopicCreationManager:
    def __init__(
        self, runtime: Runtime, metadata: ClusterMetadata, topics: TopicAdminManager, *, is_alone: bool
    ) -> None:
        """`is_alone`: no other broker will ever be in its cluster."""
        self.is_alone = is_alone
        self._runtime = runtime
        self._metadata = metadata
        self._topics = topics
        self._in_flight: set[str] = set()
        # By the names of coordinator topics that are being created.
        self._coordinator_topics: dict[str, asyncio.Task[None]] = {}

    async def create(self, names: Iterable[str], quota: "MutationQuota | None" = None) -> Mapping[str, ErrorCode]:
        """Begin the creation of unknown topics; gives what the answer says of each, NONE if the image has it now. What
        the quota of the client does not allow is not created, as in Kafka without a word: the client asks again.

        In a cluster clients ask again. A broker by itself, which does not wait for other machines, returns when its
        topics are there."""
        codes: dict[str, ErrorCode] = {}
        room = max(self._in_flight_max() - len(self._in_flight), 0)
        begun = [name for name in names if self._may_create(name, codes)][:room]
        self._in_flight.update(begun)
        creation = self._create(
            begun, None if quota is None else PartitionChanges(quota, self._runtime.broker_clock.now_ms)
        )
        if self.is_alone:
            return codes | await creation
        self._runtime.spawn(creation, "automatic creation of topics")
        return codes

    def ensure_coordinator_topic(self, name: str) -> None:
        """Start the creation of the topic where it is missing; after a failure the next call tries again."""
        self._ensure(COORDINATOR_TOPICS[name])

    async def coordinator_topic_ensured(self, name: str) -> None:
        """Returns when the topic is there, or could not be created."""
        self._ensure(COORDINATOR_TOPICS[name])
        creation = self._coordinator_topics.get(name)
        if creation is not None:
            await creation

    def _ensure(self, topic: CoordinatorTopicSpec) -> None:
        if topic.name not in self._metadata.image.topics and topic.name not in self._coordinator_topics:
            creation = self._create_coordinator_topic(topic)
            self._coordinator_topics[topic.name] = self._runtime.spawn(creation, f"creation of {topic.name}")

    def _may_create(self, name: str, codes: dict[str, ErrorCode]) -> bool:
        """Whether its creation is to begin now; `codes` gets what the answer says otherwise."""
        codes[name] = ErrorCode.LEADER_NOT_AVAILABLE
        if name in self._metadata.image.topics:
            codes[name] = ErrorCode.NONE
        elif name in COORDINATOR_TOPICS:
            self._ensure(COORDINATOR_TOPICS[name])
        elif not self._runtime.config.auto_create_topics_enable or name == CLUSTER_METADATA:
            codes[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            return name not in self._in_flight
        return False

    def _in_flight_max(self) -> int:
        """Topics that may be under way at a time; clients ask for the others again."""
        by_partitions = PARTITIONS_PER_REQUEST_MAX // max(self._runtime.config.num_partitions, 1)
        return max(min(IN_FLIGHT_MAX, by_partitions), 1)

    async def _create(self, names: Sequence[str], changes: PartitionChanges | None) -> dict[str, ErrorCode]:
        try:
            outcomes = await self._topics.create_known([NewTopic(TopicSpec(name), {}) for name in names], changes)
        finally:
            self._in_flight.difference_update(names)
        codes: dict[str, ErrorCode] = {}
        for name, outcome in zip(names, outcomes, strict=True):
            if name in self._metadata.image.topics:
                codes[name] = ErrorCode.NONE
            elif isinstance(outcome, KafkaError):
                is_throttled = outcome.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
                codes[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_throttled else outcome.code
        return codes

    async def _create_coordinator_topic(self, topic: CoordinatorTopicSpec) -> None:
        metadata = self._metadata
        try:
            if topic.replication_factor(self._runtime.config) > len(metadata.image.brokers):
                await metadata.brokers_known()
            outcome = await self._topics.create_coordinator_topic(topic)
        finally:
            del self._coordinator_topics[topic.name]
        # Another broker may have been asked for it at the same time, and the topic is all that is wanted.
        if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            log = self._runtime.log.metadata
            # Clients ask again; while all brokers register again, none is active.
            passes = outcome.code in _PASSING or not metadata.image.active_brokers
            say = log.warning if passes else log.error
            say("topic could not be created", topic=topic.name, error=str(outcome))

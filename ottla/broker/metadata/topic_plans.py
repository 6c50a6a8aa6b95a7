"""The plans of CreateTopics and CreatePartitions, checked against the image and this broker.

A plan changes nothing. It is made on the image of the moment, and again when another broker was quicker.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.config.coordinator_topics import CoordinatorTopicSpec
from ottla.broker.metadata.config_admin import checked_configs
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.image import MetadataImage, TopicInfo
from ottla.cluster.topics import (
    USE_DEFAULT,
    TopicDefaults,
    TopicSpec,
    check_creatable_by_clients,
    check_new_name,
    lacks_brokers,
    plan_more_partitions,
    plan_topic,
)
from ottla.protocol.errors import ErrorCode, KafkaError, KafkaStorageError, UnknownTopicOrPartition, error_for
from ottla.storage.log_directory import LogDirectory

if TYPE_CHECKING:
    from ottla.security.quota_budgets import MutationQuota


class NewTopic(NamedTuple):
    spec: TopicSpec
    configs: Mapping[str, str | None]


class MorePartitions(NamedTuple):
    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None


Outcome = TopicInfo | KafkaError
"""Of one topic in a request: as it is now, or why nothing was done to it."""


class TopicPlanner:
    def __init__(self, runtime: Runtime, directory: LogDirectory) -> None:
        self._runtime = runtime
        self._directory = directory
        self.leader_epoch_floor = 0
        """Where leader epochs of new topics begin."""

    def new_topics(self, topics: Sequence[NewTopic], image: MetadataImage) -> list[Outcome]:
        """One after the other, each as if those before it were there. As in Kafka, only names that are there already
        collide with a new one."""
        outcomes: list[Outcome] = []
        before = image
        for topic in topics:
            outcome = self._new_topic(topic, image, before)
            if isinstance(outcome, TopicInfo):
                image = image.with_topics({outcome.name: outcome})
            outcomes.append(outcome)
        return outcomes

    def coordinator_topic(self, topic: CoordinatorTopicSpec, image: MetadataImage) -> Outcome:
        spec = topic.topic_spec(self._runtime.config, len(image.brokers))
        return self._plan(spec, topic.configs(self._runtime.config, spec.replication_factor), image)

    def more_partitions(self, topic: MorePartitions, image: MetadataImage) -> Outcome:
        try:
            current = image.topic(topic.name)
            if current is None:
                raise UnknownTopicOrPartition(f"topic '{topic.name}' does not exist")
            return plan_more_partitions(current, topic.partition_count, topic.assignments, image, self._runtime.rng)
        except KafkaError as error:
            return error

    def partition_count(self, topic: NewTopic) -> int:
        spec = topic.spec
        if spec.assignments:
            return len(spec.assignments)
        return max(
            self._runtime.config.num_partitions if spec.num_partitions == USE_DEFAULT else spec.num_partitions, 0
        )

    def lacks_brokers(self, topic: NewTopic, image: MetadataImage) -> bool:
        """Whether the topic is to have replicas on brokers that the image does not show."""
        return lacks_brokers(topic.spec, image, self._defaults)

    @property
    def _defaults(self) -> TopicDefaults:
        config = self._runtime.config
        return TopicDefaults(config.num_partitions, config.default_replication_factor)

    def _new_topic(self, topic: NewTopic, image: MetadataImage, before: MetadataImage) -> Outcome:
        try:
            check_creatable_by_clients(topic.spec.name, image)
            check_new_name(topic.spec.name, before)
            configs = checked_configs(topic.configs, self._runtime.config)
        except KafkaError as error:
            return error
        return self._plan(topic.spec, configs, image)

    def _plan(self, spec: TopicSpec, configs: Mapping[str, str], image: MetadataImage) -> Outcome:
        try:
            topic = plan_topic(spec, image, self._defaults, configs, self._runtime.rng)
            self._check_no_foreign_logs(topic)
        except KafkaError as error:
            return error
        floor = self.leader_epoch_floor
        if not floor:
            return topic
        return replace(topic, partitions=tuple(replace(each, leader_epoch=floor) for each in topic.partitions))

    def _check_no_foreign_logs(self, topic: TopicInfo) -> None:
        """A partition that is to be here alone could have no leader while the log of a lost topic has its place."""
        node_id, logs = self._runtime.node_id, self._directory.logs
        for index, partition in enumerate(topic.partitions):
            if partition.replicas == (node_id,) and (topic.name, index) in logs:
                raise KafkaStorageError(f"{logs[topic.name, index].directory} holds the log of another topic")


class PartitionChanges:
    """What a request may change of topics, where its client has a quota for that (KIP-599, §64.9).

    Asks for each topic once, also where it is planned again because another broker was quicker."""

    def __init__(self, quota: "MutationQuota", now_ms: Callable[[], int]) -> None:
        self._quota = quota
        self._now_ms = now_ms
        self._allowed: dict[str, bool] = {}

    def admitted(self, planned: Outcome, partitions: Callable[[TopicInfo], int]) -> Outcome:
        """What is planned, or THROTTLING_QUOTA_EXCEEDED. `partitions` is how many come or go."""
        if not isinstance(planned, TopicInfo):
            return planned
        is_allowed = self._allowed.get(planned.name)
        if is_allowed is None:
            is_allowed = self._allowed[planned.name] = self._quota.record(partitions(planned), self._now_ms())
        if is_allowed:
            return planned
        return error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


def partition_changes(runtime: Runtime, context: RequestContext, strict_since: int) -> PartitionChanges | None:
    """Of a request; from that version on its topics are refused one by one. None: there is no limit."""
    if context.quotas is None:
        return None
    quota = context.quotas.mutation(is_strict=context.api_version >= strict_since)
    return None if quota is None else PartitionChanges(quota, runtime.broker_clock.now_ms)

"""Topics of this broker: created, grown, deleted and configured by decision, then store, then logs on disk.

A change is decided on the image in memory, committed to the metadata store, and only then made visible and carried out
on the logs. A crash in between is repaired by `start`: what the store says is made true on disk, in both directions.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.config.options import ConfigError
from ottla.broker.config.topic import check_topic_configs, log_config
from ottla.broker.metadata_writer import MetadataWriter
from ottla.broker.topic_logs import TopicLogs
from ottla.cluster.encoding import (
    BROKER_CONFIGS,
    DELETED,
    broker_configs_of,
    config_value,
    deleted_topic_ids,
    deletion_values,
    topic_values,
    topics_of,
)
from ottla.cluster.image import CONSUMER_OFFSETS, INTERNAL_TOPICS, BrokerInfo, MetadataImage, TopicInfo
from ottla.cluster.store import Entry, MetadataStore
from ottla.cluster.topics import (
    TopicDefaults,
    TopicSpec,
    check_creatable_by_clients,
    check_deletable,
    check_partition_count,
    plan_more_partitions,
    plan_topic,
    with_new_terms,
)
from ottla.protocol.errors import (
    ErrorCode,
    InvalidConfig,
    InvalidRequest,
    KafkaError,
    UnknownTopicOrPartition,
)
from ottla.storage.config import LogConfig

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

OFFSETS_MIN_INSYNC_REPLICAS = 2


class NewTopic(NamedTuple):
    spec: TopicSpec
    configs: Mapping[str, str | None]


class MorePartitions(NamedTuple):
    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None


Outcome = TopicInfo | KafkaError
"""Of one topic in a request: as it is now, or why nothing was done to it."""


class TopicService:
    def __init__(self, broker: "Broker", store: MetadataStore) -> None:
        self._broker = broker
        self._writer = MetadataWriter(store)
        self._logs = TopicLogs(broker)
        self._broker_configs: dict[str, dict[str, str]] = {}
        self.image = MetadataImage(broker.cluster_id, broker.node_id)

    def start(self, brokers: Iterable[BrokerInfo]) -> None:
        """Take over what the store knows, then make the logs on disk agree with it."""
        for broker in brokers:
            self.image = self.image.with_broker(broker)
        self._writer.read_all(self._load)

    def log_config_of(self, topic: TopicInfo) -> LogConfig:
        return log_config(topic.configs, self._broker.config)

    # Creation.

    def create(self, topics: Sequence[NewTopic], *, validate_only: bool, done: Callable[[list[Outcome]], None]) -> None:
        """Create what can be created, in one transaction; `done` gets one outcome per topic, in order."""
        image = self.image
        outcomes: list[Outcome] = []
        total = 0
        for topic in topics:
            outcome = self._plan_for_client(topic, image)
            if isinstance(outcome, TopicInfo):
                total += len(outcome.partitions)
                image = image.with_topics({outcome.name: outcome})
            outcomes.append(outcome)
        try:
            check_partition_count(total)
        except KafkaError as error:
            outcomes = [error if isinstance(outcome, TopicInfo) else outcome for outcome in outcomes]
        self._carry_out(outcomes, validate_only=validate_only, done=done)

    def auto_create(self, name: str) -> ErrorCode:
        """What a client that asked for the metadata of an unknown topic is told; NONE if the image has it now."""
        if name in self.image.topics:
            return ErrorCode.NONE
        if name == CONSUMER_OFFSETS:
            self.ensure_offsets_topic()
        elif self._broker.config.auto_create_topics_enable and name not in INTERNAL_TOPICS:
            failures: list[KafkaError] = []

            def failed(outcomes: list[Outcome]) -> None:
                failures.extend(outcome for outcome in outcomes if isinstance(outcome, KafkaError))

            self.create([NewTopic(TopicSpec(name), {})], validate_only=False, done=failed)
            if failures:
                return failures[0].code
        else:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE if name in self.image.topics else ErrorCode.LEADER_NOT_AVAILABLE

    def ensure_offsets_topic(self) -> None:
        """Start the creation of `__consumer_offsets` where it is missing; after a failure the next call tries again.

        Unlike Kafka's, its replication factor is bounded by the number of brokers: one broker is enough for groups."""
        if CONSUMER_OFFSETS in self.image.topics:
            return
        config = self._broker.config
        factor = min(config.offsets_topic_replication_factor, len(self.image.brokers))
        spec = TopicSpec(CONSUMER_OFFSETS, config.offsets_topic_num_partitions, factor)
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
            "min.insync.replicas": str(min(OFFSETS_MIN_INSYNC_REPLICAS, factor)),
            "unclean.leader.election.enable": "false",
        }
        self._carry_out([self._plan(spec, configs, self.image)], validate_only=False, done=self._offsets_topic_created)

    # Growth and deletion.

    def create_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool, done: Callable[[list[Outcome]], None]
    ) -> None:
        outcomes: list[Outcome] = [self._plan_growth(topic) for topic in topics]
        self._carry_out(outcomes, validate_only=validate_only, done=done)

    def delete(
        self,
        topics: Sequence[TopicInfo | None],
        *,
        says_disabled: bool,
        done: Callable[[list[Outcome]], None],
    ) -> None:
        """Delete topics and what groups have committed for them (§9.7.4). None stands for one that was not found."""
        outcomes: list[Outcome] = []
        for topic in topics:
            try:
                enabled = self._broker.config.delete_topic_enable
                outcomes.append(check_deletable(topic, deletion_enabled=enabled, says_disabled=says_disabled))
            except KafkaError as error:
                outcomes.append(error)
        gone = {outcome.name: outcome for outcome in outcomes if isinstance(outcome, TopicInfo)}

        def committed(error: KafkaError | None) -> None:
            if error is not None:
                done([error if isinstance(outcome, TopicInfo) else outcome for outcome in outcomes])
                return
            self._forget(gone)
            done(outcomes)

        self._commit(dict.fromkeys(gone), committed)

    # Configs.

    def alter_topic_configs(
        self, name: str, configs: Mapping[str, str], *, validate_only: bool, done: Callable[[KafkaError | None], None]
    ) -> None:
        """Replace a topic's own configs. Raises the KafkaError of the answer where they cannot be."""
        topic = self.image.topic(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic '{name}' does not exist")
        changed = replace(topic, configs=self._checked(configs))
        if validate_only:
            done(None)
            return

        def committed(error: KafkaError | None) -> None:
            if error is None:
                self._broker.replicas.configure(name, self.log_config_of(changed))
            done(error)

        self._commit({name: changed}, committed)

    def alter_broker_configs(
        self,
        configs: Mapping[str, str],
        *,
        of_all_brokers: bool,
        validate_only: bool,
        done: Callable[[KafkaError | None], None],
    ) -> None:
        """Replace the properties set at run time for this broker, or for all. Raises the KafkaError of the answer."""
        try:
            checked = self._broker.config.check_dynamic(configs, of_all_brokers=of_all_brokers)
        except ConfigError as error:
            raise InvalidRequest(str(error)) from None
        if validate_only:
            done(None)
            return
        owner = "" if of_all_brokers else str(self._broker.node_id)

        def committed(error: KafkaError | None) -> None:
            if error is None:
                self._broker_configs[owner] = checked
                self._apply_broker_configs()
            done(error)

        key = BROKER_CONFIGS + owner
        old = {key: config_value(self._broker_configs[owner])} if owner in self._broker_configs else {}
        self._writer.replace(old, {key: config_value(checked)}, committed)

    # Plans.

    def _plan_for_client(self, topic: NewTopic, image: MetadataImage) -> Outcome:
        try:
            check_creatable_by_clients(topic.spec.name, image)
            configs = self._checked(topic.configs)
        except KafkaError as error:
            return error
        return self._plan(topic.spec, configs, image)

    def _plan(self, spec: TopicSpec, configs: Mapping[str, str], image: MetadataImage) -> Outcome:
        config = self._broker.config
        defaults = TopicDefaults(config.num_partitions, config.default_replication_factor)
        try:
            return plan_topic(spec, image, defaults, configs, self._broker.rng)
        except KafkaError as error:
            return error

    def _plan_growth(self, topic: MorePartitions) -> Outcome:
        current = self.image.topic(topic.name)
        try:
            if current is None:
                raise UnknownTopicOrPartition(f"topic '{topic.name}' does not exist")
            return plan_more_partitions(current, topic.partition_count, topic.assignments, self.image, self._broker.rng)
        except KafkaError as error:
            return error

    def _checked(self, configs: Mapping[str, str | None]) -> dict[str, str]:
        try:
            return check_topic_configs(configs, self._broker.config)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from None

    # Carrying out.

    def _carry_out(
        self, outcomes: list[Outcome], *, validate_only: bool, done: Callable[[list[Outcome]], None]
    ) -> None:
        """Commit the planned topics, then make their logs."""
        planned = {outcome.name: outcome for outcome in outcomes if isinstance(outcome, TopicInfo)}
        if validate_only or not planned:
            done(outcomes)
            return
        before = {name: self.image.topic(name) for name in planned}

        def committed(error: KafkaError | None) -> None:
            if error is not None:
                done([error if isinstance(outcome, TopicInfo) else outcome for outcome in outcomes])
                return
            self._logs.make(planned, logs_made)

        def logs_made(failed: Mapping[str, KafkaError]) -> None:
            if failed:
                self._undo({name: before[name] for name in failed}, planned)
            done(
                [
                    failed.get(outcome.name, outcome) if isinstance(outcome, TopicInfo) else outcome
                    for outcome in outcomes
                ]
            )

        self._commit(planned, committed)

    def _commit(self, topics: Mapping[str, TopicInfo | None], done: Callable[[KafkaError | None], None]) -> None:
        old: dict[str, bytes] = {}
        new: dict[str, bytes] = {}
        for name, topic in topics.items():
            current = self.image.topic(name)
            old |= topic_values(current) if current is not None else {}
            new |= topic_values(topic) if topic is not None else {}
            if current is not None and topic is None:
                new |= deletion_values([current])

        def committed(error: KafkaError | None) -> None:
            if error is None:
                self.image = self.image.with_topics(topics)
            done(error)

        self._writer.replace(old, new, committed)

    def _undo(self, before: Mapping[str, TopicInfo | None], planned: Mapping[str, TopicInfo]) -> None:
        """A topic without its logs must not stay. Should even this commit fail, the next start makes the logs."""

        def committed(error: KafkaError | None) -> None:
            if error is not None:
                self._broker.log.error("a topic without logs stays until the next start", error=str(error))
                return
            for name, earlier in before.items():
                kept = len(earlier.partitions) if earlier is not None else 0
                for index in range(kept, len(planned[name].partitions)):
                    self._broker.replicas.delete_partition(name, index)

        self._commit(before, committed)

    def _forget(self, gone: Mapping[str, TopicInfo]) -> None:
        for topic in gone.values():
            for index in range(len(topic.partitions)):
                self._broker.replicas.delete_partition(topic.name, index)
        # Where this topic is missing, no group has committed anything.
        if gone and CONSUMER_OFFSETS in self.image.topics:
            self._broker.groups.topics_deleted(tuple(gone))

    def _offsets_topic_created(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, KafkaError):
                self._broker.log.error("__consumer_offsets could not be created", error=str(outcome))

    # Starting.

    def _load(self, entries: Sequence[Entry]) -> None:
        self._broker_configs = broker_configs_of(entries)
        self.image = self.image.with_topics({topic.name: topic for topic in topics_of(entries)})
        self._remove_deleted(entries)
        if not self._broker.log_directory.was_closed_cleanly:
            self._begin_new_terms()
        self._logs.make_all(self.image.topics)
        self._apply_broker_configs()

    def _begin_new_terms(self) -> None:
        """Records may have gone with the crash, and others will get their offsets. By the leader epoch, a client that
        has seen them notices (KIP-320)."""
        terms = {name: with_new_terms(topic, self._broker.node_id) for name, topic in self.image.topics.items()}
        self._commit(terms, self._terms_begun)

    def _terms_begun(self, error: KafkaError | None) -> None:
        if error is not None:
            self._broker.log.warning("leader epochs stay as they were before the crash", error=str(error))

    def _remove_deleted(self, entries: Sequence[Entry]) -> None:
        """Finish the deletions that a crash has cut short."""
        deleted = deleted_topic_ids(entries)
        directory = self._broker.log_directory
        for (name, index), log in list(directory.logs.items()):
            topic = self.image.topic(name)
            if log.topic_id in deleted:
                directory.delete_log(name, index, now_wall_ms=self._broker.clock.wall_ms())
            elif topic is not None and log.topic_id is None:
                directory.assign_topic_id(log, topic.topic_id)
            elif topic is None or topic.topic_id != log.topic_id or index >= len(topic.partitions):
                self._broker.log.warning("a log of no known topic is left alone", topic=name, partition=index)
        marks = {entry.key: entry.value for entry in entries if entry.key.startswith(DELETED)}
        self._writer.replace(marks, {}, self._marks_removed)

    def _marks_removed(self, error: KafkaError | None) -> None:
        if error is not None:
            self._broker.log.warning("marks of deleted topics stay until the next start", error=str(error))

    def _apply_broker_configs(self) -> None:
        of_this_broker = self._broker_configs.get(str(self._broker.node_id), {})
        self._broker.config.set_dynamic(of_this_broker=of_this_broker, of_all_brokers=self._broker_configs.get("", {}))
        # They are the defaults of every topic that has no value of its own.
        for topic in self.image.topics.values():
            self._broker.replicas.configure(topic.name, self.log_config_of(topic))

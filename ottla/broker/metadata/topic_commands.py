"""Commands about topics and configs: planned on the image, committed to the metadata store, answered when the image and
this broker's own logs have followed.

Any broker carries them out, a request of many topics in several transactions: a store takes only so much in one. A
plan that another broker was quicker than is made again on the image that shows it. What
the commands change comes to the logs by way of the image, on this broker as on the others; a crash in between is
repaired by the next start, which makes true on disk what the store says.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from ottla.broker.config.coordinator_topics import COORDINATOR_TOPICS, OFFSETS_TOPIC, CoordinatorTopicSpec
from ottla.broker.config.options import ConfigError, ConfigScopeError
from ottla.broker.config.topic import check_topic_configs
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.metadata.dynamic_configs import ALL_BROKERS
from ottla.broker.runtime import Runtime
from ottla.cluster.image import INTERNAL_TOPICS, MetadataImage, TopicInfo
from ottla.cluster.store import CommitResult, Committed, Conflict, TooLarge, Transaction, Unavailable
from ottla.cluster.topic_changes import in_transactions, replace_broker_configs, replace_topics
from ottla.cluster.topics import (
    PARTITIONS_PER_REQUEST_MAX,
    USE_DEFAULT,
    TopicDefaults,
    TopicSpec,
    check_creatable_by_clients,
    check_deletable,
    check_partition_count,
    lacks_brokers,
    plan_more_partitions,
    plan_topic,
)
from ottla.protocol.errors import (
    ErrorCode,
    InvalidConfig,
    InvalidRequest,
    KafkaError,
    KafkaStorageError,
    PolicyViolation,
    UnknownTopicOrPartition,
    error_for,
)
from ottla.storage.log_directory import LogDirectory

T = TypeVar("T")

# Of topics whose creation clients have set off by asking for metadata; some seconds' worth.
AUTO_CREATED_MAX = 1000
# Another broker may be quicker so many times in a row.
TRIES_MAX = 10


class NewTopic(NamedTuple):
    spec: TopicSpec
    configs: Mapping[str, str | None]


class MorePartitions(NamedTuple):
    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None


Outcome = TopicInfo | KafkaError
"""Of one topic in a request: as it is now, or why nothing was done to it."""


Plan = Callable[[Sequence[T]], list[Outcome]]
"""Made for some topics of a request, anew on every image it is tried on."""

NewConfigs = Callable[[], Mapping[str, str]]
"""What is to be set, given what is set; raises KafkaError where that cannot be told."""


class TopicService:
    def __init__(
        self,
        runtime: Runtime,
        metadata: ClusterMetadata,
        directory: LogDirectory,
        when_logs_made: Callable[[Collection[TopicInfo], Callable[[], None]], None],
        *,
        is_alone: bool,
    ) -> None:
        """`when_logs_made` calls back when this broker has its logs of topics, or could not make them. `is_alone`: no
        other broker will ever be in its cluster."""
        self.is_alone = is_alone
        self._runtime = runtime
        self._metadata = metadata
        self._directory = directory
        self._when_logs_made = when_logs_made
        # Topics whose creation is under way because somebody needs them.
        self._coming: set[str] = set()
        # By the names of coordinator topics that are being created.
        self._waiting_for_topic: dict[str, list[Callable[[], None]]] = {}

    @property
    def image(self) -> MetadataImage:
        return self._metadata.image

    # Creation.

    def create(self, topics: Sequence[NewTopic], *, validate_only: bool, done: Callable[[list[Outcome]], None]) -> None:
        """Create what can be created; `done` gets one outcome per topic, in order."""
        try:
            check_partition_count(sum(map(self._partitions_of, topics)))
        except KafkaError as error:
            done([error] * len(topics))
            return

        def begin() -> None:
            if validate_only:
                done(self._plans(topics))
            else:
                self._carry_out(in_transactions(topics, self._partitions_of), self._plans, done)

        if any(lacks_brokers(topic.spec, self.image, self._defaults) for topic in topics):
            self._metadata.when_brokers_are_known(begin)
        else:
            begin()

    def auto_create(self, names: Iterable[str], done: Callable[[Mapping[str, ErrorCode]], None]) -> None:
        """What a client that asked for the metadata of unknown topics is told of each; NONE if the image has it now.

        Their creations begin together. `done` is called at once, for clients ask again; but a broker by itself, which
        does not wait for other machines, tells when its topics are there."""
        codes: dict[str, ErrorCode] = {}
        room = max(self._auto_created_max() - len(self._coming), 0)
        begun = [name for name in names if self._may_auto_create(name, codes)][:room]
        self._coming.update(begun)

        def created(outcomes: list[Outcome]) -> None:
            self._coming.difference_update(begun)
            for name, outcome in zip(begun, outcomes, strict=True):
                if name in self.image.topics:
                    codes[name] = ErrorCode.NONE
                elif isinstance(outcome, KafkaError):
                    codes[name] = outcome.code
            if self.is_alone:
                done(codes)

        new = [NewTopic(TopicSpec(name), {}) for name in begun]
        self._carry_out(in_transactions(new, self._partitions_of), self._plans, created)
        if not self.is_alone:
            done(codes)

    def _may_auto_create(self, name: str, codes: dict[str, ErrorCode]) -> bool:
        """Whether its creation is to begin now; if not, `codes` says what the client is told."""
        codes[name] = ErrorCode.LEADER_NOT_AVAILABLE
        if name in self.image.topics:
            codes[name] = ErrorCode.NONE
        elif name in COORDINATOR_TOPICS:
            self._ensure(COORDINATOR_TOPICS[name])
        elif not self._runtime.config.auto_create_topics_enable or name in INTERNAL_TOPICS:
            codes[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            return name not in self._coming
        return False

    def _auto_created_max(self) -> int:
        """Topics that may be under way at a time; clients ask for the others again."""
        by_partitions = PARTITIONS_PER_REQUEST_MAX // max(self._runtime.config.num_partitions, 1)
        return max(min(AUTO_CREATED_MAX, by_partitions), 1)

    def ensure_offsets_topic(self, done: Callable[[], None] | None = None) -> None:
        """Start the creation of `__consumer_offsets` where it is missing; after a failure the next call tries again.
        `done` is called once: when the topic is there, or could not be created."""
        self._ensure(OFFSETS_TOPIC, done)

    def _ensure(self, topic: CoordinatorTopicSpec, done: Callable[[], None] | None = None) -> None:
        def failed(error: KafkaError) -> None:
            self._runtime.log.error(f"{topic.name} could not be created", error=str(error))

        def bring() -> None:
            self._bring(topic.name, lambda _: [self._plan_coordinator_topic(topic)], [topic.name], failed)

        if done is not None:
            self._waiting_for_topic.setdefault(topic.name, []).append(done)
        if topic.name in self.image.topics:
            self._creation_ended(topic.name)
            return
        if topic.replication_factor(self._runtime.config) > len(self.image.brokers):
            self._metadata.when_brokers_are_known(bring)
        else:
            bring()

    def _bring(self, name: str, plan: Plan[T], topics: list[T], failed: Callable[[KafkaError], None]) -> None:
        if name in self._coming:
            return
        self._coming.add(name)

        def done(outcomes: list[Outcome]) -> None:
            self._coming.discard(name)
            self._creation_ended(name)
            for outcome in outcomes:
                # Another broker may have been asked for it at the same time, and the topic is all that is wanted.
                if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    failed(outcome)

        self._carry_out([topics], plan, done)

    def _creation_ended(self, name: str) -> None:
        for done in self._waiting_for_topic.pop(name, ()):
            self._runtime.guard(done)

    def _plan_coordinator_topic(self, topic: CoordinatorTopicSpec) -> Outcome:
        spec = topic.topic_spec(self._runtime.config, len(self.image.brokers))
        return self._plan(spec, topic.configs(self._runtime.config, spec.replication_factor), self.image)

    # Growth and deletion.

    def create_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool, done: Callable[[list[Outcome]], None]
    ) -> None:
        def plan(some: Sequence[MorePartitions]) -> list[Outcome]:
            return [self._plan_growth(topic) for topic in some]

        if validate_only:
            done(plan(topics))
        else:
            self._carry_out(in_transactions(topics, lambda topic: topic.partition_count), plan, done)

    def delete(
        self,
        topics: Sequence[TopicInfo | None],
        *,
        says_disabled: bool,
        done: Callable[[list[Outcome]], None],
    ) -> None:
        """Delete topics and what groups have committed for them (§9.7.4). None stands for one that was not found."""

        def plan(some: Sequence[TopicInfo | None]) -> list[Outcome]:
            return [self._checked_deletion(topic, says_disabled=says_disabled) for topic in some]

        def deletion(planned: Mapping[str, TopicInfo]) -> Transaction:
            return replace_topics(self.image, dict.fromkeys(planned))

        batches = in_transactions(topics, lambda topic: 0 if topic is None else len(topic.partitions))
        self._commit_each(batches, plan, deletion, done)

    def _checked_deletion(self, topic: TopicInfo | None, *, says_disabled: bool) -> Outcome:
        if topic is not None:
            # As it is now, unless it has gone.
            topic = self.image.topic_by_id(topic.topic_id)
        try:
            enabled = self._runtime.config.delete_topic_enable
            return check_deletable(topic, deletion_enabled=enabled, says_disabled=says_disabled)
        except KafkaError as error:
            return error

    # Configs.

    def alter_topic_configs(
        self, name: str, configs: NewConfigs, *, validate_only: bool, done: Callable[[KafkaError | None], None]
    ) -> None:
        """Replace a topic's own configs. Raises the KafkaError of the answer where they cannot be."""

        def plan() -> Transaction:
            topic = self.image.topic(name)
            if topic is None:
                raise UnknownTopicOrPartition(f"topic '{name}' does not exist")
            return replace_topics(self.image, {name: replace(topic, configs=self._checked(configs()))})

        self._alter(plan, validate_only=validate_only, done=done)

    def alter_broker_configs(
        self,
        configs: NewConfigs,
        *,
        of_all_brokers: bool,
        validate_only: bool,
        done: Callable[[KafkaError | None], None],
    ) -> None:
        """Replace the properties set at run time for this broker, or for all. Raises the KafkaError of the answer."""
        owner = ALL_BROKERS if of_all_brokers else str(self._runtime.node_id)

        def plan() -> Transaction:
            try:
                checked = self._runtime.config.check_dynamic(configs(), of_all_brokers=of_all_brokers)
            except ConfigScopeError as error:
                raise InvalidConfig(str(error)) from None
            except ConfigError as error:
                raise InvalidRequest(str(error)) from None
            return replace_broker_configs(owner, checked, self._metadata.configs.revision_of(owner))

        self._alter(plan, validate_only=validate_only, done=done)

    def _alter(
        self, plan: Callable[[], Transaction], *, validate_only: bool, done: Callable[[KafkaError | None], None]
    ) -> None:
        # Made once before anything is begun, for what it raises.
        plan()
        if validate_only:
            done(None)
        else:
            self._commit(plan, done)

    # Plans.

    @property
    def _defaults(self) -> TopicDefaults:
        config = self._runtime.config
        return TopicDefaults(config.num_partitions, config.default_replication_factor)

    def _partitions_of(self, topic: NewTopic) -> int:
        spec = topic.spec
        if spec.assignments:
            return len(spec.assignments)
        return max(
            self._runtime.config.num_partitions if spec.num_partitions == USE_DEFAULT else spec.num_partitions, 0
        )

    def _plans(self, topics: Sequence[NewTopic]) -> list[Outcome]:
        image = self.image
        outcomes: list[Outcome] = []
        for topic in topics:
            outcome = self._plan_for_client(topic, image)
            if isinstance(outcome, TopicInfo):
                image = image.with_topics({outcome.name: outcome})
            outcomes.append(outcome)
        return outcomes

    def _plan_for_client(self, topic: NewTopic, image: MetadataImage) -> Outcome:
        try:
            check_creatable_by_clients(topic.spec.name, image)
            configs = self._checked(topic.configs)
        except KafkaError as error:
            return error
        return self._plan(topic.spec, configs, image)

    def _plan(self, spec: TopicSpec, configs: Mapping[str, str], image: MetadataImage) -> Outcome:
        try:
            topic = plan_topic(spec, image, self._defaults, configs, self._runtime.rng)
            self._check_no_foreign_logs(topic)
        except KafkaError as error:
            return error
        return topic

    def _check_no_foreign_logs(self, topic: TopicInfo) -> None:
        """A partition that is to be here alone could have no leader while the log of a lost topic has its place."""
        node_id, logs = self._runtime.node_id, self._directory.logs
        for index, partition in enumerate(topic.partitions):
            if partition.replicas == (node_id,) and (topic.name, index) in logs:
                raise KafkaStorageError(f"{logs[topic.name, index].directory} holds the log of another topic")

    def _plan_growth(self, topic: MorePartitions) -> Outcome:
        current = self.image.topic(topic.name)
        try:
            if current is None:
                raise UnknownTopicOrPartition(f"topic '{topic.name}' does not exist")
            return plan_more_partitions(
                current, topic.partition_count, topic.assignments, self.image, self._runtime.rng
            )
        except KafkaError as error:
            return error

    def _checked(self, configs: Mapping[str, str | None]) -> dict[str, str]:
        try:
            return check_topic_configs(configs, self._runtime.config)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from None

    # Carrying out.

    def _carry_out(self, batches: Iterable[Sequence[T]], plan: Plan[T], done: Callable[[list[Outcome]], None]) -> None:
        """Commit the planned topics, and wait for their logs here. What was committed stays: others may have records in
        it already. A log that cannot be created here is this replica's failure (`FailedLogs`)."""

        def committed(outcomes: list[Outcome]) -> None:
            def logs_made() -> None:
                done([self._as_made(each) if isinstance(each, TopicInfo) else each for each in outcomes])

            self._when_logs_made(_planned(outcomes).values(), logs_made)

        self._commit_each(batches, plan, lambda planned: replace_topics(self.image, planned), committed)

    def _commit_each(
        self,
        batches: Iterable[Sequence[T]],
        plan: Plan[T],
        transaction: Callable[[Mapping[str, TopicInfo]], Transaction],
        done: Callable[[list[Outcome]], None],
    ) -> None:
        """One batch after the other, each planned on the image that shows those before it; what was committed stays,
        whatever becomes of the others. `done` gets what became of each."""
        outcomes: list[Outcome] = []
        left = deque(batches)

        def next_batch() -> None:
            some = left.popleft()
            planned: list[Outcome] = []

            def plan_some() -> Transaction:
                planned[:] = plan(some)
                return transaction(_planned(planned))

            def applied(error: KafkaError | None) -> None:
                outcomes.extend(each if error is None or isinstance(each, KafkaError) else error for each in planned)
                if error is not None:
                    # A store that does not answer would not answer to the others either.
                    outcomes.extend(error for batch in left for _ in batch)
                    left.clear()
                if left:
                    self._runtime.soon(next_batch)
                else:
                    done(outcomes)

            self._commit(plan_some, applied)

        if left:
            next_batch()
        else:
            done(outcomes)

    def _as_made(self, planned: TopicInfo) -> TopicInfo:
        return self.image.topic_by_id(planned.topic_id) or planned

    def _commit(
        self, plan: Callable[[], Transaction], done: Callable[[KafkaError | None], None], tries_left: int = TRIES_MAX
    ) -> None:
        """Commits what is planned on the image; `done` is called when the image has it, or with why it cannot be."""
        metadata = self._metadata
        seen = metadata.image.revision
        try:
            transaction = plan()
        except KafkaError as error:
            done(error)
            return
        if not transaction.changes:
            done(None)
            return

        def answered(result: CommitResult) -> None:
            if isinstance(result, Committed):
                metadata.when_applied(result.revision, lambda: done(None))
            elif isinstance(result, Conflict) and tries_left > 1:
                metadata.when_applied(seen + 1, lambda: self._commit(plan, done, tries_left - 1))
            else:
                done(_refusal(result))

        metadata.commit(transaction, answered)


def _planned(outcomes: Sequence[Outcome]) -> dict[str, TopicInfo]:
    return {outcome.name: outcome for outcome in outcomes if isinstance(outcome, TopicInfo)}


def _refusal(result: CommitResult) -> KafkaError:
    if isinstance(result, Conflict):
        return error_for(ErrorCode.NOT_CONTROLLER, f"{result.key} was changed by another broker, try again")
    if isinstance(result, TooLarge):
        return PolicyViolation(f"{result.reason}: create it with fewer partitions, and add the others later")
    return KafkaStorageError(result.reason if isinstance(result, Unavailable) else "a lease was lost")

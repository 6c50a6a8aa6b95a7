"""CreateTopics, CreatePartitions and DeleteTopics: planned on the image, committed to the metadata store, done when the
image and this broker's own logs have followed.

Any broker carries them out, a request of many topics in several transactions: a store takes only so much in one, and
other clients are served in between. What they change comes to the logs by way of the image, on this broker as on the
others; a crash in between is repaired by the next start, which makes true on disk what the store says.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

from ottla.broker.config.coordinator_topics import CoordinatorTopicSpec
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.metadata.topic_plans import MorePartitions, NewTopic, Outcome, PartitionChanges, TopicPlanner
from ottla.broker.runtime import Runtime, in_slices, next_step
from ottla.cluster.image import MetadataImage, TopicInfo
from ottla.cluster.store import Transaction
from ottla.cluster.topic_changes import in_transactions, replace_topics
from ottla.cluster.topics import check_deletable, check_partition_count
from ottla.protocol.errors import KafkaError
from ottla.storage.log_directory import LogDirectory

T = TypeVar("T")

# What the log says of topics.
CREATED, GROWN, DELETED = "topic created", "partitions created", "topic deleted"

Plan = Callable[[Sequence[T]], list[Outcome]]
"""Made for some topics of a request, on the image of the moment."""


class TopicAdminManager:
    def __init__(
        self,
        runtime: Runtime,
        metadata: ClusterMetadata,
        directory: LogDirectory,
        logs_made: Callable[[Collection[TopicInfo]], Awaitable[None]],
    ) -> None:
        """`logs_made` returns when this broker has its logs of topics, or could not make them."""
        self._runtime = runtime
        self._metadata = metadata
        self._planner = TopicPlanner(runtime, directory)
        self._logs_made = logs_made

    @property
    def image(self) -> MetadataImage:
        return self._metadata.image

    def begin_leader_epochs_at(self, epoch: int) -> None:
        """Of topics that are created from now on: a topic of an earlier name has had lower ones."""
        self._planner.leader_epoch_floor = epoch

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, changes: PartitionChanges | None = None
    ) -> list[Outcome]:
        """Create what can be created; gives one outcome per topic, in order. `changes` are those a quota allows."""
        try:
            check_partition_count(sum(await in_slices(self._planner.partition_count, topics)))
        except KafkaError as error:
            return [error] * len(topics)
        image = self.image
        if any(await in_slices(lambda topic: self._planner.lacks_brokers(topic, image), topics)):
            await self._metadata.brokers_known()
        if validate_only:
            return await self._planned_one_by_one(topics)
        return await self.create_known(topics, changes)

    async def create_known(self, topics: Sequence[NewTopic], changes: PartitionChanges | None = None) -> list[Outcome]:
        """As `create`, on the brokers that the image has."""
        plan = _within(changes, self._plan_new, lambda topic: len(topic.partitions))
        return await self._carry_out(in_transactions(topics, self._planner.partition_count), plan, CREATED)

    async def create_coordinator_topic(self, topic: CoordinatorTopicSpec) -> Outcome:
        plan: Plan[None] = lambda _: [self._planner.coordinator_topic(topic, self.image)]  # noqa: E731 - it is typed
        (outcome,) = await self._carry_out([[None]], plan, CREATED)
        return outcome

    async def create_partitions(
        self,
        topics: Sequence[MorePartitions],
        *,
        validate_only: bool = False,
        changes: PartitionChanges | None = None,
    ) -> list[Outcome]:
        if validate_only:
            return self._plan_growth(topics)
        plan = _within(changes, self._plan_growth, self._partitions_more)
        return await self._carry_out(in_transactions(topics, lambda topic: topic.partition_count), plan, GROWN)

    async def delete(
        self,
        topics: Sequence[TopicInfo | None],
        *,
        says_disabled: bool = True,
        changes: PartitionChanges | None = None,
    ) -> list[Outcome]:
        """Delete topics and what groups have committed for them (§9.7.4). None stands for one that was not found."""
        batches = in_transactions(topics, lambda topic: 0 if topic is None else len(topic.partitions))
        plan = _within(changes, partial(self._plan_deletion, says_disabled), lambda topic: len(topic.partitions))
        return await self._commit_each(batches, plan, self._deletion, DELETED)

    # Plans.

    def _plan_new(self, topics: Sequence[NewTopic]) -> list[Outcome]:
        return self._planner.new_topics(topics, self.image)

    async def _planned_one_by_one(self, topics: Sequence[NewTopic]) -> list[Outcome]:
        image = self.image
        outcomes: list[Outcome] = []
        for some in in_transactions(topics, self._planner.partition_count):
            planned = self._planner.new_topics(some, image)
            image = image.with_topics(_topics_in(planned))
            outcomes += planned
            await next_step()
        return outcomes

    def _plan_growth(self, topics: Sequence[MorePartitions]) -> list[Outcome]:
        return [self._planner.more_partitions(topic, self.image) for topic in topics]

    def _partitions_more(self, planned: TopicInfo) -> int:
        before = self.image.topic(planned.name)
        return len(planned.partitions) - (0 if before is None else len(before.partitions))

    def _plan_deletion(self, says_disabled: bool, topics: Sequence[TopicInfo | None]) -> list[Outcome]:
        return [self._checked_deletion(topic, says_disabled=says_disabled) for topic in topics]

    def _checked_deletion(self, topic: TopicInfo | None, *, says_disabled: bool) -> Outcome:
        if topic is not None:
            # As it is now, unless it has gone.
            topic = self.image.topic_by_id(topic.topic_id)
        try:
            enabled = self._runtime.config.delete_topic_enable
            return check_deletable(topic, deletion_enabled=enabled, says_disabled=says_disabled)
        except KafkaError as error:
            return error

    # Commits.

    def _replacement(self, planned: Mapping[str, TopicInfo]) -> Transaction:
        return replace_topics(self.image, planned)

    def _deletion(self, planned: Mapping[str, TopicInfo]) -> Transaction:
        return replace_topics(self.image, dict.fromkeys(planned))

    async def _carry_out(self, batches: Iterable[Sequence[T]], plan: Plan[T], event: str) -> list[Outcome]:
        """Commit the planned topics, and wait for their logs here. What was committed stays: others may have records in
        it already. A log that cannot be created here is this replica's failure (`FailedLogs`)."""
        outcomes = await self._commit_each(batches, plan, self._replacement, event)
        await self._logs_made(_topics_in(outcomes).values())
        return await in_slices(self._as_made, outcomes)

    async def _commit_each(
        self,
        batches: Iterable[Sequence[T]],
        plan: Plan[T],
        transaction: Callable[[Mapping[str, TopicInfo]], Transaction],
        event: str,
    ) -> list[Outcome]:
        """One batch after the other, each planned on the image that shows those before it. What was committed stays,
        also when a later one fails. `event` is what the log says of each topic."""
        outcomes: list[Outcome] = []
        left = deque(batches)
        while left:
            batch = _TopicBatch(left.popleft(), plan, transaction)
            try:
                await self._metadata.commit_planned(batch.transaction)
            except KafkaError as error:
                batch.fail(error)
                # A store that does not answer would not answer to the others either.
                outcomes += [*batch.outcomes, *(error for topics in left for _ in topics)]
                return outcomes
            outcomes += batch.outcomes
            self._log(event, batch.outcomes)
            await next_step()
        return outcomes

    def _log(self, event: str, outcomes: Iterable[Outcome]) -> None:
        log = self._runtime.log.metadata
        for each in outcomes if log.writes("info") else ():
            if isinstance(each, TopicInfo):
                factor = max((len(partition.replicas) for partition in each.partitions), default=0)
                log.info(event, topic=each.name, partitions=len(each.partitions), replication_factor=factor)

    def _as_made(self, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, TopicInfo):
            return outcome
        return self.image.topic_by_id(outcome.topic_id) or outcome


def _within(changes: PartitionChanges | None, plan: Plan[T], partitions: Callable[[TopicInfo], int]) -> Plan[T]:
    """The plan, with errors for the topics that a quota does not allow to change."""
    if changes is None:
        return plan
    return lambda topics: [changes.admitted(each, partitions) for each in plan(topics)]


class _TopicBatch(Generic[T]):
    """Topics of a request that are committed in one transaction."""

    def __init__(
        self, topics: Sequence[T], plan: Plan[T], transaction: Callable[[Mapping[str, TopicInfo]], Transaction]
    ) -> None:
        self._topics = topics
        self._plan = plan
        self._transaction = transaction
        self.outcomes: list[Outcome] = []

    def transaction(self) -> Transaction:
        self.outcomes = self._plan(self._topics)
        return self._transaction(_topics_in(self.outcomes))

    def fail(self, error: KafkaError) -> None:
        self.outcomes = [each if isinstance(each, KafkaError) else error for each in self.outcomes]


def _topics_in(outcomes: Sequence[Outcome]) -> dict[str, TopicInfo]:
    return {outcome.name: outcome for outcome in outcomes if isinstance(outcome, TopicInfo)}

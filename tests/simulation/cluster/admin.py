"""An operator who is busy while all this happens: elects leaders, moves replicas, makes topics and deletes them."""

import random
from typing import TYPE_CHECKING

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.simulation.cluster.client import PASSING, REQUEST_TIMEOUT_MS, Client, Partition
from tests.simulation.cluster.plan import NODE_IDS
from tests.simulation.cluster.producing import batch_of, produce_request
from tests.simulation.cluster.risked import RISKED
from tests.simulation.cluster.topic_ids import SHORT_LIVED, TopicChurn
from tests.simulation.cluster.transacting import TOPIC as PAYMENTS

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

PREFERRED, UNCLEAN = 0, 1
GROWING, PARTITIONS_MAX = "beta", 3
RETRY_MS = 500
# What an operator gets who is too early, too late, or asks for what cannot be done at the moment.
UNTIMELY = {
    ErrorCode.NONE,
    ErrorCode.ELECTION_NOT_NEEDED,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    *PASSING,
}


TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
# What may be altered while records are written and read, by the type of resource.
TOPIC_CONFIGS = {
    "segment.bytes": ["500", "2000", "1000000"],
    "segment.ms": ["2000", "600000"],
    "index.interval.bytes": ["0", "200", "4096"],
    "segment.index.bytes": ["24", "10485760"],
    "retention.bytes": ["1500", "-1"],
    "retention.ms": ["4000", "604800000"],
    "flush.messages": ["1", "7", "9223372036854775807"],
    "flush.ms": ["500", "9223372036854775807"],
    "file.delete.delay.ms": ["0", "3000"],
}
# Where the plan has throttles. What replicas in sync get counts too: at the lower rate the producers of some worlds
# leave nothing to those that lag. The higher one is fast enough for all to be in sync at last.
TOPIC_THROTTLES = {
    "leader.replication.throttled.replicas": ["*", "0:1,0:2,1:1,1:2"],
    "follower.replication.throttled.replicas": ["*", "0:2,0:3,1:3"],
}
THROTTLED_RATES = ["4000", "40000"]
BROKER_THROTTLES = {
    "leader.replication.throttled.rate": THROTTLED_RATES,
    "follower.replication.throttled.rate": THROTTLED_RATES,
}
BROKER_CONFIGS = {
    "log.segment.bytes": ["700", "1000000"],
    "log.cleaner.backoff.ms": ["300", "15000"],
    "log.index.interval.bytes": ["0", "4096"],
    "log.segment.delete.delay.ms": ["0", "60000"],
}


def risked_topic() -> CreatableTopic:
    """Its records may be lost: any replica may be elected."""
    configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    return CreatableTopic(
        name=RISKED,
        num_partitions=1,
        replication_factor=len(NODE_IDS),
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )


class Admin:
    def __init__(self, world: "ClusterWorld", rng: random.Random) -> None:
        self.client = Client(world, rng, "admin")
        self._world = world
        self._rng = rng
        self._growth_rng = world.make_rng("growing topics")
        self._churn = TopicChurn(world) if world.plan.uses_topic_ids else None

    async def elect(self) -> None:
        """Gives leadership back to the first replicas, wherever they are in sync."""
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None, timeout_ms=REQUEST_TIMEOUT_MS)
        response = await self.client.ask(request, 2)
        if response is not None:
            results = [result for topic in response.replica_election_results for result in topic.partition_result]
            self._judge("elect leaders", response.error_code, *(result.error_code for result in results))

    async def reassign(self) -> None:
        """Moves one partition to other brokers, or fewer, or in another order; or calls a move off."""
        replicas = self._rng.choice([None, self._some_brokers(), self._some_brokers(), self._some_brokers()])
        topic, index = self._rng.choice(self._world.partitions)
        if not self._world.may_be_left_to((topic, index), replicas):
            return
        partition = ReassignablePartition(partition_index=index, replicas=replicas)
        topics = [ReassignableTopic(name=topic, partitions=[partition])]
        response = await self.client.ask(
            AlterPartitionReassignmentsRequest(timeout_ms=REQUEST_TIMEOUT_MS, topics=topics), 0
        )
        if response is not None:
            results = [result for topic in response.responses for result in topic.partitions]
            self._judge(f"reassign {replicas}", response.error_code, *(result.error_code for result in results))

    async def grow(self) -> None:
        """One partition more, placed by the controller or by hand."""
        name = self._growth_rng.choice([GROWING, PAYMENTS]) if self._world.plan.transacts else GROWING
        topic = self._world.truth.image.topic(name)
        if topic is None or len(topic.partitions) >= PARTITIONS_MAX:
            return
        by_hand = [CreatePartitionsAssignment(broker_ids=self._rng.sample(NODE_IDS, len(NODE_IDS)))]
        wanted = CreatePartitionsTopic(
            name=name, count=len(topic.partitions) + 1, assignments=self._rng.choice([None, by_hand])
        )
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=REQUEST_TIMEOUT_MS)
        response = await self.client.ask(request, self._rng.randint(0, 3))
        # The answer of an earlier attempt may have been lost: then there are so many already.
        if response is not None and response.results[0].error_code != ErrorCode.INVALID_PARTITIONS:
            self._judge("create partitions", response.results[0].error_code)

    async def risk(self) -> None:
        """Writes to a topic that any replica may lead, and elects one that is there if no replica in sync is."""
        for number in range(self._rng.randint(1, 5)):
            records = batch_of([f"at risk {number}"], self._world.wall_ms())
            await self.client.ask(produce_request((RISKED, 0), records, acks=1), 9)
        partitions = [TopicPartitions(topic=RISKED, partitions=[0])]
        request = ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=partitions, timeout_ms=REQUEST_TIMEOUT_MS)
        response = await self.client.ask(request, 2)
        if response is not None:
            results = [result for topic in response.replica_election_results for result in topic.partition_result]
            self._judge("elect unclean", response.error_code, *(result.error_code for result in results))

    async def churn(self) -> None:
        """A topic that is made, written to, and deleted while it is still being copied."""
        if self._churn is not None:
            await self._churn.once()
            return
        topic = CreatableTopic(name=SHORT_LIVED, num_partitions=2, replication_factor=self._rng.choice([2, 3]))
        response = await self.client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS), 7)
        if response is not None:
            self._judge("create topic", *(result.error_code for result in response.topics))
        await self._write(self._rng.randint(0, 4))
        response = await self.client.ask(
            DeleteTopicsRequest(topic_names=[SHORT_LIVED], timeout_ms=REQUEST_TIMEOUT_MS), 5
        )
        if response is not None:
            self._judge("delete topic", *(result.error_code for result in response.responses))

    async def delete_records(self) -> None:
        """Of one partition, up to some offset that was committed, or up to the high watermark."""
        deletable = self._world.partitions + (
            self._world.book.partitions if self._world.plan.deletes_transactions else []
        )
        topic, index = self._rng.choice(deletable)
        end = self._world.committed_end((topic, index))
        offset = self._rng.choice([-1, self._rng.randint(0, end), self._rng.randint(0, end // 2)])
        partitions = [DeleteRecordsPartition(partition_index=index, offset=offset)]
        topics = [DeleteRecordsTopic(name=topic, partitions=partitions)]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS)
        try:
            wire, _ = await self.client.leader((topic, index))
            response = await wire.call(request, self._rng.randint(0, 2), within_ms=2 * REQUEST_TIMEOUT_MS)
        except OSError:
            return
        error = ErrorCode(response.topics[0].partitions[0].error_code)
        # A new leader may not know yet that what was committed is. Of what is only compacted nothing can be deleted.
        is_compacted = error is ErrorCode.POLICY_VIOLATION and self._world.plan.alters_settings
        if error is not ErrorCode.OFFSET_OUT_OF_RANGE and not is_compacted:
            self._judge("delete records", error)
        if error is not ErrorCode.NONE:
            self.client.metadata_is_stale()

    async def configure(self) -> None:
        """Alters a few configs of a topic or of all brokers, or gives them back their defaults."""
        of_topic = self._rng.random() < 0.7
        choices = TOPIC_CONFIGS if of_topic else BROKER_CONFIGS
        if self._world.plan.throttles and self._rng.random() < 0.7:
            choices = TOPIC_THROTTLES if of_topic else BROKER_THROTTLES
        names = self._rng.sample(sorted(choices), self._rng.randint(1, min(3, len(choices))))
        configs = [self._altered(name, choices[name]) for name in names]
        name = self._rng.choice(self._world.topics) if of_topic else ""
        kind = TOPIC if of_topic else BROKER
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        response = await self.client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        if response is not None:
            self._judge(f"alter {configs}", *(result.error_code for result in response.responses))

    async def raise_throttles(self) -> None:
        """As an operator has to do when replicas in sync use a throttle up; it goes on until a broker has done it."""
        configs = [
            AlterableConfig(name=name, config_operation=SET, value=THROTTLED_RATES[-1]) for name in BROKER_THROTTLES
        ]
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        while True:
            response = await self.client.ask(request, 1)
            codes = (
                [ErrorCode.REQUEST_TIMED_OUT] if response is None else [each.error_code for each in response.responses]
            )
            self._judge("raise throttles", *codes)
            if not any(codes):
                return
            await self._world.sleep_ms(RETRY_MS)

    def _altered(self, name: str, values: list[str]) -> AlterableConfig:
        if self._rng.random() < 0.3:
            return AlterableConfig(name=name, config_operation=DELETE, value=None)
        value = self._rng.choice(values)
        if name == "flush.messages" and self._world.plan.blackouts:
            # All replicas may lose power at once: no record that is acknowledged may be unsynced.
            value = "1"
        return AlterableConfig(name=name, config_operation=SET, value=value)

    async def _write(self, batches: int) -> None:
        for number in range(batches):
            partition: Partition = (SHORT_LIVED, self._rng.randrange(2))
            records = batch_of([f"short-lived {number}"], self._world.wall_ms())
            await self.client.ask(produce_request(partition, records, acks=1), 9)

    def _some_brokers(self) -> list[int]:
        """As many as acks=all asks for."""
        return self._rng.sample(NODE_IDS, self._rng.randint(2, len(NODE_IDS)))

    def _judge(self, what: str, *codes: int) -> None:
        for error in map(ErrorCode, codes):
            if error not in UNTIMELY:
                self._world.judge.violated("answers", f"{what} was answered {error.name}")

"""AlterPartitionReassignments, ListPartitionReassignments and UnregisterBroker, with several brokers on one store."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.broker.broker import Broker
from ottla.broker.config.alter import ConfigResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.broker.clusters import ask, create_topic, running_cluster, state_of, until


def move(*targets: Sequence[int] | None, topic: str = "t", first: int = 0) -> AlterPartitionReassignmentsRequest:
    """Partitions from `first` on go to these replicas; None gives a move up."""
    partitions = [
        ReassignablePartition(partition_index=first + i, replicas=None if target is None else list(target))
        for i, target in enumerate(targets)
    ]
    topics = [ReassignableTopic(name=topic, partitions=partitions)]
    return AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=5000)


def codes(response: AlterPartitionReassignmentsResponse) -> list[int]:
    assert response.error_code == 0
    return [row.error_code for topic in response.responses for row in topic.partitions]


async def altered(broker: Broker, topic: str, values: Mapping[str, str]) -> None:
    """The configs of a topic, or of all brokers."""
    configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in values.items()]
    kind = ConfigResourceType.TOPIC if topic else ConfigResourceType.BROKER
    resource = AlterConfigsResource(resource_type=kind, resource_name=topic, configs=configs)
    response = await ask(broker, IncrementalAlterConfigsRequest(resources=[resource]))
    assert response.responses[0].error_code == 0


ALL = ListPartitionReassignmentsRequest(topics=None)


async def test_a_move_begins_and_is_listed_until_it_is_given_up(tmp_path: Path) -> None:
    """The broker that it goes to is away, so that it cannot end."""
    async with running_cluster(tmp_path, brokers=3) as cluster:
        asked = cluster.brokers[0]
        await create_topic(asked, "t", [0, 1], [0, 1])
        await cluster.stop_broker(2)

        begun = await ask(asked, move([2, 1]))
        state = state_of(asked)
        listed = (await ask(asked, ALL)).topics
        others = ListPartitionReassignmentsTopics(name="t", partition_indexes=[1, 9])
        listed_of_others = (await ask(asked, ListPartitionReassignmentsRequest(topics=[others]))).topics
        cancelled = await ask(asked, move(None))

        assert codes(begun) == codes(cancelled) == [0]
        assert (state.replicas, state.adding, state.removing) == ((2, 1, 0), (2,), (0,))
        ongoing = OngoingPartitionReassignment(
            partition_index=0, replicas=[2, 1, 0], adding_replicas=[2], removing_replicas=[0]
        )
        assert listed == [OngoingTopicReassignment(name="t", partitions=[ongoing])]
        assert listed_of_others == []
        assert (await ask(asked, ALL)).topics == []
        assert set(state_of(asked).replicas) == {0, 1}


async def test_a_move_to_replicas_that_are_in_sync_ends_at_once(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        asked, other = cluster.brokers[0], cluster.brokers[1]
        await create_topic(asked, "t", [0, 1], [0, 1])

        assert codes(await ask(asked, move([1], [1, 0]))) == [0, 0]

        alone, reordered = state_of(asked), state_of(asked, "t", 1)
        assert (alone.replicas, alone.isr, alone.leader) == ((1,), (1,), 1)
        assert (reordered.replicas, reordered.leader) == ((1, 0), 0)
        await until(lambda: state_of(other) == alone)


async def test_what_cannot_be_is_refused_for_each_partition_by_itself(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        asked = cluster.brokers[0]
        await create_topic(asked, "t", *[[0, 1]] * 6)
        before = [state_of(asked, "t", index) for index in range(6)]

        refused = await ask(asked, move([0, 7], [], [1, 1], None, [0, 1], [-1], [0]))
        unknown = await ask(asked, move([0], topic="nosuch"))
        message = refused.responses[0].partitions[0].error_message

        bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        unknown_partition = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes(refused) == [bad, bad, bad, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, 0, bad, unknown_partition]
        assert codes(unknown) == [unknown_partition]
        assert message == "there is no broker 7"
        assert [state_of(asked, "t", index) for index in range(6)] == before


async def test_a_partition_that_is_named_twice_is_not_moved(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        asked = cluster.brokers[0]
        await create_topic(asked, "t", [0, 1])
        twice = move([1, 0])
        twice.topics += move([1]).topics

        assert codes(await ask(asked, twice)) == [ErrorCode.INVALID_REQUEST] * 2
        assert state_of(asked).replicas == (0, 1)


async def test_the_records_stay_where_the_only_replica_in_sync_is(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        asked = cluster.brokers[0]
        await create_topic(asked, "t", [0, 1])
        await cluster.stop_broker(1)
        await until(lambda: state_of(asked).isr == (0,))

        begun = await ask(asked, move([1]))

        # Broker 0 stays among the replicas until 1 has caught up, or it would be refused.
        assert codes(begun) in ([0], [ErrorCode.INVALID_REPLICA_ASSIGNMENT])
        assert state_of(asked).leader == 0
        assert 0 in state_of(asked).replicas


async def test_replica_that_comes_back_obeys_altered_configs(tmp_path: Path) -> None:
    """Its log was on the disk all the time, moved away while its broker was stopped."""
    async with running_cluster(tmp_path, brokers=3, min_insync_replicas=1) as cluster:
        asked = cluster.brokers[0]
        await create_topic(asked, "t", [0, 1])
        await cluster.stop_broker(1)
        assert codes(await ask(asked, move([0]))) == [0]
        await cluster.start_broker(1)
        await altered(asked, "", {"message.max.bytes": "5000"})
        await altered(asked, "t", {"cleanup.policy": "compact"})

        assert codes(await ask(asked, move([0, 1]))) == [0]
        await until(lambda: state_of(asked).isr == (0, 1))

        config = cluster.brokers[1].replicas.partition("t", 0).log.config
        assert (config.max_message_bytes, config.cleanup_policy) == (5000, {"compact"})


async def test_a_broker_that_is_gone_is_forgotten_by_all(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=3) as cluster:
        asked, other = cluster.brokers[0], cluster.brokers[1]
        await cluster.stop_broker(2)
        assert 2 in asked.image.brokers

        response = await ask(asked, UnregisterBrokerRequest(broker_id=2))

        assert response.error_code == 0
        assert set(asked.image.brokers) == {0, 1}
        await until(lambda: set(other.image.brokers) == {0, 1})


async def test_unregister_of_an_unknown_broker_fails(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=1) as cluster:
        response = await ask(cluster.brokers[0], UnregisterBrokerRequest(broker_id=7))

        assert response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert response.error_message == "there is no broker 7"


async def test_unregistered_live_broker_registers_again_without_loss(tmp_path: Path) -> None:
    """It is the only one in sync, and leads again: this is no return after a crash (§19.4.3 c)."""
    async with running_cluster(tmp_path, brokers=3) as cluster:
        asked, forgotten = cluster.brokers[0], cluster.brokers[1]
        await create_topic(asked, "t", [1, 2])
        await cluster.stop_broker(2)
        await until(lambda: state_of(asked).isr == (1,))
        epoch = forgotten.metadata.broker_epoch

        assert (await ask(asked, UnregisterBrokerRequest(broker_id=1))).error_code == 0

        await until(lambda: 1 in asked.image.active_brokers and forgotten.metadata.broker_epoch > epoch)
        await until(lambda: state_of(asked).leader == 1)

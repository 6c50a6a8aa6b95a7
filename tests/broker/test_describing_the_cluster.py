"""What Kafka's tools ask about the cluster as a whole: its quorum, its resources, the directories of its replicas."""

from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, QuorumPartition, QuorumTopic
from ottla.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.broker.asking import Asking, running
from tests.broker.clusters import ask, running_cluster, until
from tests.broker.requests import topic

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
LONG_NAME = "x" * 220


async def with_topics(broker: Asking, *names: str) -> None:
    created = await broker.ask(CreateTopicsRequest(topics=[topic(name) for name in names], timeout_ms=5000), 7)
    assert {each.error_code for each in created.topics} == {0}, created


def moves(path: str, name: str, *partitions: int) -> AlterReplicaLogDir:
    return AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=name, partitions=list(partitions))])


async def moved(broker: Asking, *dirs: AlterReplicaLogDir) -> dict[tuple[str, int], int]:
    answer = await broker.ask(AlterReplicaLogDirsRequest(dirs=list(dirs)), 2)
    return {
        (of_topic.topic_name, each.partition_index): each.error_code
        for of_topic in answer.results
        for each in of_topic.partitions
    }


async def test_replica_may_stay_in_its_directory_and_go_nowhere_else(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await with_topics(broker, "t", "u", LONG_NAME)
        own = str(broker.broker.log_directory.path)

        codes = await moved(broker, moves(own, "t", 0, 1), moves("/nowhere", "u", 0), moves("/x", LONG_NAME, 0))

        assert codes == {
            ("t", 0): ErrorCode.NONE,
            ("t", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("u", 0): ErrorCode.LOG_DIR_NOT_FOUND,
            (LONG_NAME, 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
        }


async def test_directory_of_a_relative_path_is_named_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with running(Path("data")) as broker:
        await with_topics(broker, "t")
        (described,) = (await broker.ask(DescribeLogDirsRequest(topics=None), 4)).results
        codes = [await moved(broker, moves(each, "t", 0)) for each in (described.log_dir, "data")]

    assert described.log_dir == str(tmp_path / "data")
    assert [code for outcome in codes for code in outcome.values()] == [ErrorCode.NONE, ErrorCode.LOG_DIR_NOT_FOUND]


async def test_last_directory_of_a_partition_named_twice_counts(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await with_topics(broker, "t")
        own = str(broker.broker.log_directory.path)

        assert await moved(broker, moves(own, "t", 0), moves("/nowhere", "t", 0)) == {
            ("t", 0): ErrorCode.LOG_DIR_NOT_FOUND
        }


async def listed(broker: Asking, *types: int, version: int = 1) -> tuple[int, list[tuple[int, str]]]:
    answer = await broker.ask(ListConfigResourcesRequest(resource_types=list(types)), version)
    return answer.error_code, [(each.resource_type, each.resource_name) for each in answer.config_resources]


async def test_config_resources_are_listed_by_type(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await with_topics(broker, "t")
        own = str(broker.broker.node_id)

        assert await listed(broker) == (0, [(TOPIC, "t"), (BROKER, own), (LOGGER, own)])
        assert await listed(broker, LOGGER, GROUP) == (0, [(LOGGER, own)])
        assert await listed(broker, TOPIC, 3) == (ErrorCode.UNSUPPORTED_VERSION, [])
        assert await listed(broker, version=0) == (0, [])


def asked_about(name: str, *partitions: int) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[QuorumTopic(topic_name=name, partitions=[QuorumPartition(partition_index=each) for each in partitions])]
    )


async def test_controller_leads_the_metadata_and_brokers_vote(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=3) as cluster:
        broker = cluster.brokers[0]
        await cluster.stop_broker(2)
        await until(lambda: 2 not in broker.metadata.image.live_brokers)

        answer = await ask(broker, asked_about("__cluster_metadata", 0))

        image = broker.metadata.image
        (partition,) = answer.topics[0].partitions
        assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (
            image.controller_id,
            image.controller_epoch,
            image.revision,
        )
        ends = {each.replica_id: each.log_end_offset for each in partition.current_voters}
        assert (ends, partition.observers) == ({0: image.revision, 1: image.revision, 2: -1}, [])
        assert [each.node_id for each in answer.nodes] == [0, 1, 2]


async def test_quorum_of_another_partition_is_unknown(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        answers = [
            await broker.ask(request, 2) for request in (asked_about("t", 0), asked_about("__cluster_metadata", 0, 1))
        ]

        assert [[each.error_code for each in answer.topics[0].partitions] for answer in answers] == [[3], [3, 3]]

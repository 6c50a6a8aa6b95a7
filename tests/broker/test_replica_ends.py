"""ListOffsets as Kafka's debugging replica: how far each replica has come, for who looks after a cluster."""

from pathlib import Path

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.broker.clusters import ask, create_topic, running_cluster, until
from tests.broker.wire import client_of, produce

ANY_REPLICA, CONSUMER = -2, -1
LATEST, EARLIEST, BY_TIME = -1, -2, 5


def question(replica_id: int, timestamp: int = LATEST) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=replica_id, topics=[ListOffsetsTopic(name="t", partitions=[partition])])


async def test_debugging_replica_id_reads_any_replicas_log_end(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        leader, follower = cluster.brokers[0], cluster.brokers[1]
        await create_topic(leader, "t", [0, 1])
        async with client_of(leader) as client:
            await produce(client, "t", b"a", b"b")
        await until(lambda: follower.replicas.partition("t", 0).log.log_end_offset == 2)

        for broker in (leader, follower):
            end = (await ask(broker, question(ANY_REPLICA))).topics[0].partitions[0]
            start = (await ask(broker, question(ANY_REPLICA, EARLIEST))).topics[0].partitions[0]
            assert (end.error_code, end.offset, start.offset) == (0, 2, 0)

        consumer = (await ask(follower, question(CONSUMER))).topics[0].partitions[0]
        by_time = (await ask(follower, question(ANY_REPLICA, BY_TIME))).topics[0].partitions[0]
        assert consumer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (by_time.error_code, by_time.offset) == (0, 0)


async def test_broker_without_the_replica_is_not_leader_or_follower(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", [0])

        answer = (await ask(cluster.brokers[1], question(ANY_REPLICA))).topics[0].partitions[0]

        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

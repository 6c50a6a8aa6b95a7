"""ElectLeaders: with several brokers on one store, whichever is asked."""

import asyncio
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.cluster.image import NO_LEADER
from ottla.cluster.store import CommitResult, Transaction
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from tests.broker.clusters import ask, create_topic, running_cluster, state_of, until

PREFERRED, UNCLEAN = 0, 1


def election(kind: int, *indexes: int, topic: str = "t", timeout_ms: int = 5000) -> ElectLeadersRequest:
    asked = [TopicPartitions(topic=topic, partitions=list(indexes))]
    return ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=timeout_ms)


def of_everything(kind: int) -> ElectLeadersRequest:
    return ElectLeadersRequest(election_type=kind, topic_partitions=None, timeout_ms=5000)


def codes(response: ElectLeadersResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.topic, row.partition_id): row.error_code
        for topic in response.replica_election_results
        for row in topic.partition_result
    }


async def reorder(broker: Broker, *targets: tuple[int, ...]) -> None:
    """Gives the partitions of `t` another preferred leader; the present leaders stay."""
    partitions = [ReassignablePartition(partition_index=i, replicas=list(target)) for i, target in enumerate(targets)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=partitions)])
    response = await ask(broker, request)
    assert {row.error_code for topic in response.responses for row in topic.partitions} == {0}


@pytest.mark.parametrize("version", range(3))
async def test_the_preferred_replica_is_elected_in_every_version(tmp_path: Path, version: int) -> None:
    """§19.3.1"""
    async with running_cluster(tmp_path) as cluster:
        asked, other = cluster.brokers[1], cluster.brokers[0]
        await create_topic(asked, "t", [1, 0])
        await reorder(asked, (0, 1))
        epoch = state_of(asked).leader_epoch

        response = await ask(asked, election(PREFERRED, 0), version)

        assert (response.error_code, codes(response)) == (0, {("t", 0): 0})
        assert (state_of(asked).leader, state_of(asked).leader_epoch) == (0, epoch + 1)
        await until(lambda: state_of(other).leader == 0)


async def test_each_partition_has_its_own_answer(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        asked = cluster.brokers[0]
        await create_topic(asked, "t", [0, 1], [0, 1])
        await reorder(asked, (1, 0))

        preferred = await ask(asked, election(PREFERRED, 0, 1, 7))
        unknown = await ask(asked, election(PREFERRED, 0, topic="nosuch"))
        unclean = await ask(asked, election(UNCLEAN, 1))

        assert codes(preferred) == {
            ("t", 0): ErrorCode.NONE,
            ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
            ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert codes(unknown) == {("nosuch", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert codes(unclean) == {("t", 1): ErrorCode.ELECTION_NOT_NEEDED}


async def test_election_of_all_answers_only_partitions_in_need(tmp_path: Path) -> None:
    """Two transactions: more partitions than fit into one."""
    count = 70
    async with running_cluster(tmp_path) as cluster:
        asked = cluster.brokers[0]
        await create_topic(asked, "t", *[[0, 1]] * count)
        await reorder(asked, *[(1, 0)] * (count - 1))

        response = await ask(asked, of_everything(PREFERRED))

        assert codes(response) == {("t", index): 0 for index in range(count - 1)}
        assert [state_of(asked, "t", index).leader for index in range(count)] == [1] * (count - 1) + [0]


async def test_a_preferred_replica_that_is_away_is_not_elected(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        asked = cluster.brokers[0]
        await create_topic(asked, "t", [1, 0])
        await cluster.stop_broker(1)
        await until(lambda: state_of(asked).leader == 0)

        assert codes(await ask(asked, election(PREFERRED, 0))) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


async def test_an_unclean_election_gives_a_partition_a_leader_again(tmp_path: Path) -> None:
    """§19.4.3 d: an explicit act, where no replica that has everything is left."""
    async with running_cluster(tmp_path, brokers=3) as cluster:
        asked = cluster.brokers[0]
        await create_topic(asked, "t", [1, 2])
        await cluster.stop_broker(2)
        await until(lambda: state_of(asked).isr == (1,))
        await cluster.kill_broker(1)
        await until(lambda: state_of(asked).leader == NO_LEADER)

        too_early = await ask(asked, election(UNCLEAN, 0))
        await cluster.start_broker(2)
        elected = await ask(asked, election(UNCLEAN, 0))

        assert codes(too_early) == {("t", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
        assert codes(elected) == {("t", 0): 0}
        assert (state_of(asked).leader, state_of(asked).isr) == (2, (2,))


async def test_an_unknown_kind_of_election_is_refused(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=1) as cluster:
        asked = cluster.brokers[0]
        await create_topic(asked, "t", [0])

        named, everything = await ask(asked, election(2, 0)), await ask(asked, of_everything(-1))
        nothing = await ask(asked, ElectLeadersRequest(election_type=2, topic_partitions=[], timeout_ms=5000))

        assert (named.error_code, codes(named)) == (ErrorCode.INVALID_REQUEST, {("t", 0): ErrorCode.INVALID_REQUEST})
        assert (everything.error_code, codes(everything)) == (ErrorCode.INVALID_REQUEST, {})
        assert (nothing.error_code, codes(nothing)) == (ErrorCode.NONE, {})


async def test_a_decision_that_another_was_quicker_than_is_made_again(tmp_path: Path) -> None:
    """What the other did is seen: the election is not needed any more."""
    async with running_cluster(tmp_path) as cluster:
        asked, quicker = cluster.brokers[0], cluster.brokers[1]
        await create_topic(asked, "t", [0, 1])
        await reorder(asked, (1, 0))
        await until(lambda: state_of(quicker).replicas == (1, 0))
        commit = asked.metadata.commit

        async def commit_second(transaction: Transaction) -> CommitResult:
            asked.metadata.commit = commit
            await quicker.metadata.commit(transaction)
            return await commit(transaction)

        asked.metadata.commit = commit_second

        assert codes(await ask(asked, election(PREFERRED, 0))) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}
        assert state_of(asked).leader == 1


async def test_what_is_not_done_in_time_is_said(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        asked = cluster.brokers[0]
        await create_topic(asked, "t", [0, 1])
        await reorder(asked, (1, 0))
        unanswered: list[asyncio.Future[CommitResult]] = []

        def commit(transaction: Transaction) -> "asyncio.Future[CommitResult]":
            unanswered.append(asyncio.get_running_loop().create_future())
            return unanswered[-1]

        asked.metadata.commit = commit

        response = await ask(asked, election(PREFERRED, 0, timeout_ms=20))

        assert codes(response) == {("t", 0): ErrorCode.REQUEST_TIMED_OUT}
        assert len(unanswered) == 1

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli.failures import ClientError
from ottla.cli.operations import partitions as operations
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tests.cli.clusters import fake_brokers, has_log_ends, partition, topic
from tests.cli.fake_broker import FakeBroker
from tests.cli.runner import json_of, output_of, refusal_of, run, run_at


def described(index: int, *, elr: list[int] | None = None, isr: list[int]) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=isr[0] if isr else -1,
        leader_epoch=3,
        replica_nodes=[0, 1, 2],
        isr_nodes=isr,
        eligible_leader_replicas=elr,
        offline_replicas=[2],
    )


def page(*partitions: DescribeTopicPartitionsResponsePartition, cursor: Cursor | None = None) -> object:
    described = DescribeTopicPartitionsResponseTopic(name="t", partitions=list(partitions))
    return DescribeTopicPartitionsResponse(topics=[described], next_cursor=cursor)


def moving(*indexes: int) -> ListPartitionReassignmentsResponse:
    """Partitions of `t` that get replica 2 in place of 0."""
    rows = [
        OngoingPartitionReassignment(
            partition_index=index, replicas=[2, 1, 0], adding_replicas=[2], removing_replicas=[0]
        )
        for index in indexes
    ]
    return ListPartitionReassignmentsResponse(topics=[OngoingTopicReassignment(name="t", partitions=rows)])


def elected(*codes: int, message: str | None = None) -> ElectLeadersResponse:
    rows = [
        PartitionResult(partition_id=index, error_code=code, error_message=message) for index, code in enumerate(codes)
    ]
    return ElectLeadersResponse(replica_election_results=[ReplicaElectionResult(topic="t", partition_result=rows)])


def reassigned(*codes: int, message: str | None = None) -> AlterPartitionReassignmentsResponse:
    rows = [
        ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message)
        for index, code in enumerate(codes)
    ]
    return AlterPartitionReassignmentsResponse(responses=[ReassignableTopicResponse(name="t", partitions=rows)])


# Describe.


def test_describe_shows_eligible_leaders_and_moves_page_by_page() -> None:
    with FakeBroker() as broker:
        broker.answer(
            DescribeTopicPartitionsRequest,
            page(described(0, isr=[0, 1], elr=[]), cursor=Cursor(topic_name="t", partition_index=1)),
            page(described(1, isr=[], elr=[0, 1])),
        )
        broker.answer(ListPartitionReassignmentsRequest, moving(0))

        assert output_of(broker, "partitions", "describe", "t") == (
            "TOPIC  PARTITION  LEADER  EPOCH  REPLICAS  ISR  ELR  OFFLINE  MOVING\n"
            "t              0       0      3  0,1,2     0,1  -          2  +2,-0\n"
            "t              1       -      3  0,1,2     -    0,1        2  -\n"
        )
        assert [each.cursor for each in broker.requests(DescribeTopicPartitionsRequest)] == [
            None,
            Cursor(topic_name="t", partition_index=1),
        ]


def test_describe_asks_an_older_cluster_for_metadata() -> None:
    with FakeBroker(ranges={3: (0, 12)}) as broker:
        broker.has_topics(topic("t", partition(-1, [0, 1], [1])))

        assert json_of(broker, "partitions", "describe") == [
            {
                "topic": "t",
                "partition": 0,
                "leader": None,
                "leader_epoch": 4,
                "replicas": [0, 1],
                "isr": [1],
                "elr": None,
                "offline": [0],
                "adding": [],
                "removing": [],
            }
        ]


def test_describe_refuses_a_topic_that_does_not_exist() -> None:
    with FakeBroker() as broker:
        missing = DescribeTopicPartitionsResponseTopic(name="nosuch", error_code=3)
        broker.answer(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse(topics=[missing]))
        broker.answer(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse())

        assert refusal_of(broker, "partitions", "describe", "nosuch") == "topic nosuch: it does not exist"


# Elect.


def test_elect_sends_what_is_named_and_says_what_was_not_needed() -> None:
    with FakeBroker() as broker:
        broker.answer(ElectLeadersRequest, elected(0, 84))

        assert output_of(broker, "partitions", "elect", "t:0", "t:1", "--preferred") == (
            "t:0 elected\nt:1 no election needed\n"
        )
        (request,) = broker.requests(ElectLeadersRequest)
        assert (request.election_type, request.topic_partitions) == (
            0,
            [TopicPartitions(topic="t", partitions=[0, 1])],
        )


def test_elect_expands_topics_and_the_whole_cluster() -> None:
    with FakeBroker() as broker:
        broker.answer(DescribeTopicPartitionsRequest, page(described(0, isr=[0]), described(1, isr=[0])))
        broker.answer(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse())
        broker.answer(ElectLeadersRequest, elected(0))

        output_of(broker, "partitions", "elect", "t", "--unclean")
        output_of(broker, "partitions", "elect", "--all", "--unclean")

        first, second = broker.requests(ElectLeadersRequest)
        assert first.topic_partitions == [TopicPartitions(topic="t", partitions=[0, 1])]
        assert second.topic_partitions is None
        assert first.election_type == second.election_type == 1


def test_elections_that_fail_are_said_after_those_that_did_not() -> None:
    with FakeBroker() as broker:
        broker.answer(ElectLeadersRequest, elected(0, 80, 3, message="why"))
        result = run_at(broker, "partitions", "elect", "t:0", "t:1", "t:2", "--preferred")

    assert (result.exit_code, result.stdout) == (1, "t:0 elected\n")
    assert result.stderr == (
        "Error: partition t-1: its first replica is not alive and in sync (why); "
        "partition t-2: it does not exist (why)\n"
    )


def test_elect_is_tried_again_while_there_is_no_controller() -> None:
    with FakeBroker() as broker:
        broker.answer(ElectLeadersRequest, ElectLeadersResponse(error_code=41), elected(0))

        assert output_of(broker, "partitions", "elect", "t:0", "--preferred") == "t:0 elected\n"


# Reassign.


def test_reassign_begins_the_moves_and_returns() -> None:
    with FakeBroker() as broker:
        broker.answer(AlterPartitionReassignmentsRequest, reassigned(0, 0))

        assert output_of(broker, "partitions", "reassign", "t:1=2,1", "t:0=0") == "t:0 moving\nt:1 moving\n"
        (request,) = broker.requests(AlterPartitionReassignmentsRequest)
        assert request.topics == [
            ReassignableTopic(
                name="t",
                partitions=[
                    ReassignablePartition(partition_index=0, replicas=[0]),
                    ReassignablePartition(partition_index=1, replicas=[2, 1]),
                ],
            )
        ]


def test_reassign_waits_until_nothing_is_moving() -> None:
    with fake_brokers(3) as brokers:
        first = brokers[0]
        first.has_topics(topic("t", partition(0, [2, 1], [2, 1])), brokers=brokers)
        first.answer(AlterPartitionReassignmentsRequest, reassigned(0))
        first.answer(ListPartitionReassignmentsRequest, moving(0), moving(0), ListPartitionReassignmentsResponse())
        for broker in brokers:
            has_log_ends(broker, {("t", 0): 5})

        assert output_of(first, "partitions", "reassign", "t:0=2,1", "--wait") == "t:0 moved to 2,1\n"
        assert len(first.requests(ListPartitionReassignmentsRequest)) == 3


def test_reassign_says_what_is_not_moved_when_the_time_is_over() -> None:
    with fake_brokers(3) as brokers:
        first = brokers[0]
        first.has_topics(topic("t", partition(0, [2, 1, 0], [1, 0])), brokers=brokers)
        first.answer(AlterPartitionReassignmentsRequest, reassigned(0))
        first.answer(ListPartitionReassignmentsRequest, moving(0))
        for broker in brokers:
            has_log_ends(broker, {("t", 0): 5})

        assert refusal_of(first, "partitions", "reassign", "t:0=2,1", "--wait", "--timeout", "0.2") == (
            "1 of 1 partitions have not been moved: t:0 has replicas 2,1,0"
        )


def test_reassign_cancels_moves_of_partitions_and_topics() -> None:
    with FakeBroker() as broker:
        broker.answer(ListPartitionReassignmentsRequest, moving(0, 1))
        broker.answer(AlterPartitionReassignmentsRequest, reassigned(0, 0))

        assert output_of(broker, "partitions", "reassign", "t", "--cancel") == "t:0 cancelled\nt:1 cancelled\n"
        (request,) = broker.requests(AlterPartitionReassignmentsRequest)
        assert [(row.partition_index, row.replicas) for row in request.topics[0].partitions] == [(0, None), (1, None)]


def test_a_move_that_is_refused_is_said() -> None:
    with FakeBroker() as broker:
        broker.answer(AlterPartitionReassignmentsRequest, reassigned(39, message="there is no broker 9"))

        assert refusal_of(broker, "partitions", "reassign", "t:0=9", "--wait") == (
            "partition t-0: the replicas are not possible (there is no broker 9)"
        )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("elect", "t"), "give --preferred or --unclean"),
        (("reassign", "t:0=1", "--verify", "--throttle", "5"), "--cancel and --verify go with no other option"),
        (("elect", "--preferred"), "name topics or partitions, or give --all"),
        (("elect", "t", "--all", "--preferred"), "name topics or partitions, or give --all"),
        (("elect", "t:0=1", "--preferred"), "t:0 takes no replicas here"),
        (("reassign",), "Missing argument"),
        (("reassign", "t:0"), "t has no new replicas: write TOPIC:PARTITION=ID,ID,..."),
        (("reassign", "t:0=1", "t:0=2"), "t:0 is given twice"),
        (("reassign", "t:0=1", "--cancel"), "t:0 takes no replicas here"),
        (("reassign", "t:0=1", "--timeout", "1"), "--timeout needs --wait"),
    ],
)
def test_wrong_usage_is_said_and_ends_with_status_2(arguments: tuple[str, ...], sentence: str) -> None:
    result = run("partitions", *arguments)

    assert result.exit_code == 2
    assert sentence in result.stderr


async def planned(
    monkeypatch: pytest.MonkeyPatch, replicas: list[tuple[int, ...]], node_ids: list[int] | None
) -> dict[int, tuple[int, ...]]:
    states = [operations.PartitionState("t", n, 0, 0, nodes, (), None, ()) for n, nodes in enumerate(replicas)]

    async def describe(*_: object) -> list[operations.PartitionState]:
        return states

    async def metadata(_: object) -> Any:
        return SimpleNamespace(brokers=[SimpleNamespace(node_id=node_id, rack=None) for node_id in range(3)])

    monkeypatch.setattr(operations, "describe_partitions", describe)
    client: Any = SimpleNamespace(metadata=metadata)
    return {move.partition: move.proposed for move in await operations.plan_moves(client, ["t"], node_ids)}


async def test_plan_leaves_out_what_need_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await planned(monkeypatch, [(0, 1), (1, 2), (2, 0)], None) == {}
    assert await planned(monkeypatch, [(0, 1), (1, 0), (2, 0), (1, 2), (2, 1), (1, 0)], None) == {0: (0, 2), 1: (0, 1)}
    assert await planned(monkeypatch, [(1,), (0,)], [1]) == {1: (1,)}


async def test_plan_needs_live_brokers_and_enough_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClientError, match="broker 7 is not live"):
        await planned(monkeypatch, [(0,)], [7])
    with pytest.raises(ClientError, match="t:0 has 2 replicas, more than the brokers to use"):
        await planned(monkeypatch, [(0, 1)], [1])

"""`ottla partitions reassign --throttle`: the configs that are set before, and removed when the moves are done."""

from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ottla.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tests.cli.clusters import fake_brokers, has_log_ends, partition, topic
from tests.cli.fake_broker import FakeBroker
from tests.cli.runner import output_of, refusal_of
from tests.cli.test_partitions import moving

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
NOTHING_MOVES = ListPartitionReassignmentsResponse()


def serves(brokers: list[FakeBroker], *moves: ListPartitionReassignmentsResponse) -> FakeBroker:
    """A topic with replicas 1 and 0, and these answers to the question what is being moved."""
    for broker in brokers:
        broker.has_topics(topic("t", partition(0, [1, 0], [1, 0])), brokers=brokers)
        broker.answer(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse())
        has_log_ends(broker, {("t", 0): 5})
    brokers[0].answer(ListPartitionReassignmentsRequest, *moves)
    brokers[0].answer(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse())
    return brokers[0]


def altered(broker: FakeBroker) -> list[tuple[str, dict[str, str | None]]]:
    return [
        (resource.resource_name, {config.name: config.value for config in resource.configs})
        for request in broker.requests(IncrementalAlterConfigsRequest)
        for resource in request.resources
    ]


def test_brokers_and_topic_are_throttled_before_the_move() -> None:
    with fake_brokers(3) as brokers:
        first = serves(brokers, NOTHING_MOVES)

        output_of(first, "partitions", "reassign", "t:0=2,1", "--throttle", "500")

        rates = {LEADER_RATE: "500", FOLLOWER_RATE: "500"}
        assert altered(first) == [("0", rates), ("t", {LEADERS: "0:1,0:0", FOLLOWERS: "0:2"})]
        assert [altered(each) for each in brokers[1:]] == [[("1", rates)], [("2", rates)]]
        kinds = [type(request) for request, _ in first.asked]
        assert kinds.index(IncrementalAlterConfigsRequest) < kinds.index(AlterPartitionReassignmentsRequest)


def test_throttle_ends_when_all_moves_are_done() -> None:
    with fake_brokers(3) as brokers:
        first = serves(brokers, NOTHING_MOVES)

        output_of(first, "partitions", "reassign", "t:0=1,0", "--throttle", "500", "--wait")

        removed = {LEADER_RATE: None, FOLLOWER_RATE: None}
        assert altered(first)[-2:] == [("0", removed), ("t", {LEADERS: None, FOLLOWERS: None})]
        assert [altered(each)[-1] for each in brokers[1:]] == [("1", removed), ("2", removed)]


def test_verify_moves_nothing_and_ends_the_throttle() -> None:
    with fake_brokers(3) as brokers:
        first = serves(brokers, NOTHING_MOVES)

        assert output_of(first, "partitions", "reassign", "t:0=1,0", "--verify") == "t:0 moved to 1,0\n"

        assert first.requests(AlterPartitionReassignmentsRequest) == []
        assert altered(first) == [
            ("0", {LEADER_RATE: None, FOLLOWER_RATE: None}),
            ("t", {LEADERS: None, FOLLOWERS: None}),
        ]


def test_verify_leaves_the_throttle_while_something_moves() -> None:
    with fake_brokers(3) as brokers:
        first = serves(brokers, moving(0))

        assert refusal_of(first, "partitions", "reassign", "t:0=2,1", "--verify") == (
            "1 of 1 partitions have not been moved: t:0 has replicas 1,0"
        )
        assert [altered(each) for each in brokers] == [[], [], []]

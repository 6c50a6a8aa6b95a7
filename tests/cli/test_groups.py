import pytest

from ottla.protocol.messages import consumer_protocol
from ottla.protocol.messages import offset_fetch as fetch
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.cli.fake_broker import FakeBroker
from tests.cli.runner import json_of, output_of, refusal_of, run
from tests.fakes.consumer_protocol import build_assignment

FIRST, LAST = 5, 20
# What ListOffsets finds for a time: -1 is "every record is older".
AT_TIME = {0: 12, 1: -1}


def assigned(*partitions: int) -> bytes:
    topic = consumer_protocol.TopicPartition(topic="t", partitions=list(partitions))
    return build_assignment(ConsumerProtocolAssignment(assigned_partitions=[topic]), 1)


def member(member_id: str, assignment: bytes, instance: str | None = None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member_id,
        group_instance_id=instance,
        client_id="app",
        client_host="/10.0.0.1",
        member_assignment=assignment,
    )


def offsets(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
    def offset(row: object) -> int:
        return {-2: FIRST, -1: LAST}.get(row.timestamp, AT_TIME[row.partition_index])

    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=row.partition_index, offset=offset(row))
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def group_broker(
    broker: FakeBroker,
    *,
    state: str = "Empty",
    members: tuple[DescribedGroupMember, ...] = (),
    committed: dict[int, int] | None = None,
    group_error: int = 0,
    protocol_type: str = "consumer",
) -> None:
    """Group g of topic t, which has two partitions."""
    rows = [MetadataResponsePartition(partition_index=i, leader_id=0, replica_nodes=[0]) for i in range(2)]
    broker.has_topics(MetadataResponseTopic(name="t", partitions=rows))
    found = Coordinator(key="g", node_id=0, host="127.0.0.1", port=broker.port)
    broker.answer(FindCoordinatorRequest, FindCoordinatorResponse(coordinators=[found]))
    group = DescribedGroup(
        group_id="g",
        group_state=state,
        protocol_type=protocol_type,
        protocol_data="range" if members else "",
        members=list(members),
        error_code=group_error,
    )
    broker.answer(DescribeGroupsRequest, DescribeGroupsResponse(groups=[group]))
    broker.answers[ListOffsetsRequest] = offsets

    def fetched(request: fetch.OffsetFetchRequest, version: int) -> fetch.OffsetFetchResponse:
        items = (committed or {}).items()
        old = [fetch.OffsetFetchResponsePartition(partition_index=i, committed_offset=o) for i, o in items]
        new = [fetch.OffsetFetchResponsePartitions(partition_index=i, committed_offset=o) for i, o in items]
        group = fetch.OffsetFetchResponseGroup(
            group_id="g", topics=[fetch.OffsetFetchResponseTopics(name="t", partitions=new)]
        )
        return fetch.OffsetFetchResponse(
            topics=[fetch.OffsetFetchResponseTopic(name="t", partitions=old)], groups=[group] if version >= 8 else []
        )

    broker.answers[fetch.OffsetFetchRequest] = fetched
    done = [OffsetCommitResponsePartition(partition_index=i) for i in range(2)]
    response = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=done)])
    broker.answer(OffsetCommitRequest, response)


def commits(broker: FakeBroker) -> dict[int, int]:
    requests = broker.requests(OffsetCommitRequest)
    return {row.partition_index: row.committed_offset for r in requests for t in r.topics for row in t.partitions}


def test_list_asks_every_broker_for_its_groups() -> None:
    with FakeBroker() as first, FakeBroker() as second:
        first.has_topics(brokers=[first, second])
        listed = ListedGroup(group_id="b", protocol_type="consumer", group_state="Stable", group_type="classic")
        first.answer(ListGroupsRequest, ListGroupsResponse(groups=[listed]))
        second.ranges[ListGroupsRequest.API_KEY] = (0, 3)
        second.answer(ListGroupsRequest, ListGroupsResponse(groups=[ListedGroup(group_id="a")]))

        assert output_of(first, "groups", "list") == (
            "GROUP  STATE   PROTOCOL-TYPE  KIND     COORDINATOR\n"
            "a      -       -              -                  1\n"
            "b      Stable  consumer       classic            0\n"
        )


@pytest.mark.parametrize("offset_fetch_version", [2, 7, 9])
def test_describe_shows_members_assignments_offsets_and_lag(offset_fetch_version: int) -> None:
    with FakeBroker() as broker:
        broker.ranges[fetch.OffsetFetchRequest.API_KEY] = (0, offset_fetch_version)
        members = (member("m-2", b""), member("m-1", assigned(1, 0), instance="i"))
        group_broker(broker, state="Stable", members=members, committed={0: 17})

        assert output_of(broker, "groups", "describe", "g") == (
            f"group g\n"
            f"  state        Stable\n"
            f"  protocol     consumer range\n"
            f"  coordinator  127.0.0.1:{broker.port}\n"
            f"  members      2\n"
            f"  total lag    3\n"
            f"MEMBER  INSTANCE  CLIENT  HOST      ASSIGNMENT\n"
            f"m-1     i         app     10.0.0.1  t:0,1\n"
            f"m-2     -         app     10.0.0.1  -\n"
            f"TOPIC  PARTITION  COMMITTED-OFFSET  LOG-END-OFFSET  LAG  MEMBER\n"
            f"t              0                17              20    3  m-1\n"
            f"t              1                 -              20    -  m-1\n"
        )


def test_describe_as_json() -> None:
    with FakeBroker() as broker:
        group_broker(broker, state="Stable", members=(member("m-1", assigned(0)),), committed={0: 17})

        (described,) = json_of(broker, "groups", "describe", "g")

    assert described["members"][0]["assignment"] == [{"topic": "t", "partition": 0}]
    assert described["partitions"] == [
        {
            "topic": "t",
            "partition": 0,
            "committed_offset": 17,
            "log_end_offset": 20,
            "member_id": "m-1",
            "lag": 3,
        }
    ]


@pytest.mark.parametrize(("protocol_type", "assignment"), [("connect", b"\x00\x01whatever"), ("consumer", b"\xff")])
def test_assignment_of_another_protocol_type_stays_opaque(protocol_type: str, assignment: bytes) -> None:
    with FakeBroker() as broker:
        group_broker(broker, state="Stable", members=(member("m", assignment),), protocol_type=protocol_type)

        (described,) = json_of(broker, "groups", "describe", "g")

    assert described["members"][0]["assignment"] is None


@pytest.mark.parametrize(("state", "group_error"), [("Dead", 0), ("", 69)])
def test_a_group_that_does_not_exist(state: str, group_error: int) -> None:
    with FakeBroker() as broker:
        group_broker(broker, state=state, group_error=group_error)

        assert refusal_of(broker, "groups", "describe", "g") == "group g: it does not exist"


def test_offsets_of_a_deleted_topic_have_no_end() -> None:
    with FakeBroker() as broker:
        group_broker(broker, committed={0: 17})
        broker.has_topics()

        (described,) = json_of(broker, "groups", "describe", "g")

    assert (described["partitions"][0]["log_end_offset"], described["partitions"][0]["lag"]) == (None, None)


@pytest.mark.parametrize(
    ("way", "new"),
    [
        (("--to-earliest",), {0: 5, 1: 5}),
        (("--to-latest",), {0: 20, 1: 20}),
        (("--to-offset", "7"), {0: 7, 1: 7}),
        (("--to-offset", "3"), {0: 5, 1: 5}),
        (("--to-offset", "21"), {0: 20, 1: 20}),
        (("--shift-by", "-2"), {0: 8, 1: 16}),
        (("--shift-by", "4"), {0: 14, 1: 20}),
        (("--to-datetime", "2026-03-01T12:00:00+01:00"), {0: 12, 1: 20}),
        (("--by-duration", "PT1H"), {0: 12, 1: 20}),
    ],
)
def test_where_offsets_can_be_reset_to(way: tuple[str, ...], new: dict[int, int]) -> None:
    with FakeBroker() as broker:
        group_broker(broker, committed={0: 10, 1: 18})

        shown = json_of(broker, "groups", "reset-offsets", "g", "--all-topics", *way)
        assert {row["partition"]: row["new_offset"] for row in shown["offsets"]} == new
        assert commits(broker) == {}

        output_of(broker, "groups", "reset-offsets", "g", "--all-topics", *way, "--execute")
        assert commits(broker) == new


def test_the_plan_is_shown_and_said_not_to_be_executed() -> None:
    with FakeBroker() as broker:
        group_broker(broker, committed={0: 10})

        assert output_of(broker, "groups", "reset-offsets", "g", "--topic", "t", "--to-earliest") == (
            "TOPIC  PARTITION  COMMITTED-OFFSET  NEW-OFFSET\n"
            "t              0                10           5\n"
            "t              1                 -           5\n"
            "nothing was changed; add --execute to commit\n"
        )


def test_single_partitions_can_be_reset() -> None:
    with FakeBroker() as broker:
        group_broker(broker, committed={0: 10, 1: 18})

        output_of(broker, "groups", "reset-offsets", "g", "--topic", "t:1", "--to-earliest", "--execute")

        assert commits(broker) == {1: 5}


def test_a_group_that_does_not_exist_yet_can_be_given_offsets() -> None:
    with FakeBroker() as broker:
        group_broker(broker, state="Dead")

        output_of(broker, "groups", "reset-offsets", "g", "--topic", "t", "--to-latest", "--execute")

        assert commits(broker) == {0: 20, 1: 20}


def test_a_group_with_members_is_left_alone() -> None:
    with FakeBroker() as broker:
        group_broker(broker, state="Stable", members=(member("m", assigned(0)),), committed={0: 10})

        assert refusal_of(broker, "groups", "reset-offsets", "g", "--all-topics", "--to-latest", "--execute") == (
            "cannot reset the offsets of group g: it has members; stop its consumers first"
        )
        assert commits(broker) == {}


def test_consumer_that_joins_between_plan_and_commit_is_noticed() -> None:
    with FakeBroker() as broker:
        group_broker(broker, committed={0: 10})
        row = OffsetCommitResponsePartition(partition_index=0, error_code=25)
        refused = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[row])])
        broker.answer(OffsetCommitRequest, refused)

        assert refusal_of(broker, "groups", "reset-offsets", "g", "--all-topics", "--to-latest", "--execute") == (
            "cannot commit t-0 for group g: it has members; stop its consumers first"
        )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--all-topics", "--to-latest"), "group g has committed no offsets; name topics with --topic"),
        (("--topic", "t", "--shift-by", "1"), "cannot shift t-0: the group has committed no offset for it"),
        (("--topic", "t:7", "--to-latest"), "topic t has no partition 7"),
        (("--topic", "nix", "--to-latest"), "topic nix: it does not exist"),
    ],
)
def test_resets_that_cannot_be_planned(arguments: tuple[str, ...], sentence: str) -> None:
    with FakeBroker() as broker:
        group_broker(broker)

        assert refusal_of(broker, "groups", "reset-offsets", "g", *arguments) == sentence


@pytest.mark.parametrize(
    "arguments",
    [
        ("--all-topics",),
        ("--to-latest",),
        ("--all-topics", "--topic", "t", "--to-latest"),
        ("--all-topics", "--to-latest", "--to-earliest"),
        ("--topic", "t:x", "--to-latest"),
        ("--all-topics", "--to-offset", "-1"),
        ("--all-topics", "--to-datetime", "yesterday"),
        ("--all-topics", "--by-duration", "1h"),
        ("--all-topics", "--by-duration", "P"),
    ],
)
def test_wrong_usage_of_reset_offsets(arguments: tuple[str, ...]) -> None:
    assert run("groups", "reset-offsets", "g", *arguments).exit_code == 2


@pytest.mark.parametrize(("code", "why"), [(68, "it has members; stop its consumers first"), (69, "it does not exist")])
def test_groups_that_cannot_be_deleted(code: int, why: str) -> None:
    with FakeBroker() as broker:
        group_broker(broker)
        result = DeletableGroupResult(group_id="g", error_code=code)
        broker.answer(DeleteGroupsRequest, DeleteGroupsResponse(results=[result]))

        assert refusal_of(broker, "groups", "delete", "g") == f"cannot delete group g: {why}"


def test_groups_without_members_can_be_deleted() -> None:
    with FakeBroker() as broker:
        group_broker(broker)
        broker.answer(DeleteGroupsRequest, DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g")]))

        assert output_of(broker, "groups", "delete", "g") == "deleted group g\n"

"""Requests that no usual client sends, answered as Apache Kafka 4.1 answers them (`make differential`)."""

from pathlib import Path

import pytest

from ottla.broker.server.request_context import TOPIC_OPERATIONS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import alter_configs
from ottla.protocol.messages import incremental_alter_configs as incremental
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignableTopic,
)
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, TopicProduceData
from ottla.protocol.messages.sync_group import SyncGroupRequest
from tests.broker.asking import Asking, running
from tests.broker.requests import epoch_end, fetch, list_offsets, metadata, produce, topic
from tests.broker.wire import batch, values_of

SET, DELETE, APPEND, SUBTRACT, NO_OPERATION = range(5)

GROUP_READY = FindCoordinatorRequest(coordinator_keys=["g"])
NOT_SET = -(2**31)


async def with_topic(broker: Asking) -> None:
    created = await broker.ask(CreateTopicsRequest(topics=[topic("t", 2)], timeout_ms=5000), 7)
    assert created.topics[0].error_code == 0, created


async def test_last_data_for_a_partition_named_twice_is_written(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await with_topic(broker)
        request = produce("t", records=batch(b"first"))
        request.topic_data[0].partition_data.append(PartitionProduceData(index=0, records=batch(b"second")))
        request.topic_data += [
            TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch(b"third"))])
        ]

        answer = await broker.ask(request, 9)

        assert [(each.name, len(each.partition_responses)) for each in answer.responses] == [("t", 1)]
        fetched = await broker.ask(fetch("t"), 11)
        assert values_of(fetched.responses[0].partitions[0].records) == [b"third"]


async def test_topic_without_partitions_is_left_out_of_produce(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        request = produce("t")
        request.topic_data = [TopicProduceData(name="t", partition_data=[])]

        assert (await broker.ask(request, 9)).responses == []


async def test_records_refused_by_the_log_come_with_its_start(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await with_topic(broker)
        refused = produce("t", records=batch(b"x", control=True, producer_id=1, producer_epoch=0, base_sequence=0))
        two_batches = produce("t", records=batch(b"x") + batch(b"y"))

        starts = [
            (await broker.ask(request, 9)).responses[0].partition_responses[0].log_start_offset
            for request in (refused, two_batches)
        ]

        assert starts == [0, -1]


async def test_unknown_topic_comes_before_strange_acks(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        answer = await broker.ask(produce("nowhere", acks=2), 9)

        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_first_fetch_without_partitions_opens_a_session(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        answer = await broker.ask(FetchRequest(session_id=0, session_epoch=0), 12)

        assert answer.session_id > 0


async def test_unknown_isolation_level_is_a_server_error(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await with_topic(broker)
        by_name = await broker.ask(fetch("t", isolation_level=2), 12)
        listed = list_offsets("t", 0)
        listed.isolation_level = 2
        offset = (await broker.ask(listed, 7)).topics[0].partitions[0]

        assert (by_name.error_code, by_name.responses[0].partitions[0].error_code) == (-1, -1)
        assert (offset.error_code, offset.offset, offset.leader_epoch) == (-1, -1, -1)


@pytest.mark.parametrize(("timestamp", "offset"), [(-2, 0), (-1, 2), (1_001, 1), (-3, 1)])
async def test_any_replica_finds_offsets_by_timestamp(tmp_path: Path, timestamp: int, offset: int) -> None:
    async with running(tmp_path) as broker:
        await with_topic(broker)
        await broker.ask(produce("t", records=batch(b"a", b"b")), 9)
        request = list_offsets("t", 0, timestamp=timestamp)
        request.replica_id = -2

        found = (await broker.ask(request, 8)).topics[0].partitions[0]

        assert (found.error_code, found.offset) == (0, offset)


def pages(*names: str, limit: int = 2000, cursor: Cursor | None = None) -> DescribeTopicPartitionsRequest:
    topics = [TopicRequest(name=name) for name in names]
    return DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1])
async def test_page_has_room_for_at_least_one_partition(tmp_path: Path, limit: int) -> None:
    async with running(tmp_path) as broker:
        await with_topic(broker)
        page = await broker.ask(pages("t", limit=limit), 0)

        assert [each.partition_index for each in page.topics[0].partitions] == [0]
        assert page.next_cursor == Cursor(topic_name="t", partition_index=1)


@pytest.mark.parametrize("cursor", [Cursor(topic_name="other"), Cursor(topic_name="t", partition_index=-1)])
async def test_cursor_outside_the_topics_is_refused(tmp_path: Path, cursor: Cursor) -> None:
    async with running(tmp_path) as broker:
        await with_topic(broker)
        page = await broker.ask(pages("t", cursor=cursor), 0)

        assert [(each.name, each.error_code) for each in page.topics] == [("t", ErrorCode.INVALID_REQUEST)]


async def test_topics_without_partitions_are_answered_as_asked(tmp_path: Path) -> None:
    """Kafka names them in some answers and not in others."""
    async with running(tmp_path) as broker:
        await with_topic(broker)
        await broker.ask(GROUP_READY, 4)
        moved = await broker.ask(AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t")]), 0)
        elected = await broker.ask(ElectLeadersRequest(topic_partitions=None), 2)
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[])]
        fetched = await broker.ask(OffsetFetchRequest(group_id="g", topics=topics), 5)
        listing = list_offsets("t")
        listing.topics[0].partitions = []
        listed = await broker.ask(listing, 7)
        committed = await broker.ask(OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t")]), 5)

        assert [(each.name, each.partitions) for each in moved.responses] == [("t", [])]
        assert ("t", []) in [(each.topic, each.partition_result) for each in elected.replica_election_results]
        assert [(each.name, each.partitions) for each in fetched.topics] == [("t", [])]
        assert committed.topics == listed.topics == []


async def test_leader_epoch_below_none_is_fenced(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await with_topic(broker)
        answer = await broker.ask(epoch_end("t", 0, current=-2), 4)

        assert answer.topics[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_operations_on_unknown_topics_are_returned(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        request = metadata("nowhere")
        request.include_topic_authorized_operations = True

        (unknown,) = (await broker.ask(request, 9)).topics

        assert unknown.topic_authorized_operations == TOPIC_OPERATIONS


async def test_operations_of_a_group_that_is_not_there_are_unset(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.ask(GROUP_READY, 4)
        request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)

        (group,) = (await broker.ask(request, 6)).groups

        assert (group.error_code, group.authorized_operations) == (ErrorCode.GROUP_ID_NOT_FOUND, NOT_SET)


async def test_follower_unknown_to_the_cluster_learns_what_is_absent(tmp_path: Path) -> None:
    """Of partitions that are there the answer says that it has none of them; topics without partitions are left out."""
    async with running(tmp_path) as broker:
        await with_topic(broker)
        known = broker.broker.image.topics["t"].topic_id
        partitions = [FetchPartition(partition=index, current_leader_epoch=-1) for index in (0, 9)]
        by_name = FetchRequest(
            replica_id=77,
            topics=[FetchTopic(topic="t", partitions=partitions), FetchTopic(topic="u", partitions=[])],
        )
        by_id = FetchRequest(
            replica_state=ReplicaState(replica_id=77),
            topics=[FetchTopic(topic_id=each, partitions=partitions) for each in (known, b"\1" * 16)],
        )

        answers = [await broker.ask(by_name, 12), await broker.ask(by_id, 17)]

        codes = [[[each.error_code for each in topic.partitions] for topic in answer.responses] for answer in answers]
        no_replica, absent = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == [[[no_replica, absent]], [[no_replica, absent], [ErrorCode.UNKNOWN_TOPIC_ID] * 2]]


async def test_epoch_is_checked_also_of_who_asks_any_replica(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await with_topic(broker)
        request = list_offsets("t", epoch=9)
        request.replica_id = -2

        answer = await broker.ask(request, 7)

        assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_resource_without_a_name_has_no_configs_to_describe(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        resources = [DescribeConfigsResource(resource_type=kind, resource_name="") for kind in (16, 32)]

        answer = await broker.ask(DescribeConfigsRequest(resources=resources), 4)

        assert [each.error_code for each in answer.results] == [ErrorCode.INVALID_REQUEST] * 2


async def test_unknown_configs_of_metrics_and_groups_are_refused(tmp_path: Path) -> None:
    """By other errors, as in Kafka; that a value is missing comes first for both."""
    async with running(tmp_path) as broker:
        codes = []
        for value in ("1", None):
            config = alter_configs.AlterableConfig(name="no.such", value=value)
            resources = [
                alter_configs.AlterConfigsResource(resource_type=kind, resource_name="x", configs=[config])
                for kind in (16, 32)
            ]
            answer = await broker.ask(alter_configs.AlterConfigsRequest(resources=resources), 1)
            codes.append([each.error_code for each in answer.responses])

        invalid = ErrorCode.INVALID_REQUEST
        assert codes == [[invalid, ErrorCode.INVALID_CONFIG], [invalid, invalid]]


@pytest.mark.parametrize(
    ("operations", "of_metrics", "of_groups"),
    [
        ((DELETE,), ErrorCode.NONE, ErrorCode.NONE),
        ((DELETE, SET), ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG),
        ((SET, APPEND), ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_CONFIG),
        ((SUBTRACT,), ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_CONFIG),
        ((DELETE, NO_OPERATION), ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_only_deleting_can_be_done_to_metrics_and_groups(
    tmp_path: Path, operations: tuple[int, ...], of_metrics: ErrorCode, of_groups: ErrorCode
) -> None:
    """What is not set can be deleted. As in Kafka, that something is no list comes before unknown names."""
    configs = [
        incremental.AlterableConfig(name=f"no.such.{number}", config_operation=operation, value="1")
        for number, operation in enumerate(operations)
    ]
    resources = [
        incremental.AlterConfigsResource(resource_type=kind, resource_name="x", configs=configs) for kind in (16, 32)
    ]
    async with running(tmp_path) as broker:
        answer = await broker.ask(incremental.IncrementalAlterConfigsRequest(resources=resources), 1)

    assert [each.error_code for each in answer.responses] == [of_metrics, of_groups]


async def test_what_is_no_list_comes_before_a_name_that_is_missing(tmp_path: Path) -> None:
    configs = [
        [incremental.AlterableConfig(name="no.such", config_operation=each, value="1")] for each in (APPEND, SET)
    ]
    resources = [incremental.AlterConfigsResource(resource_type=32, resource_name="", configs=each) for each in configs]
    async with running(tmp_path) as broker:
        answers = [
            await broker.ask(incremental.IncrementalAlterConfigsRequest(resources=[each]), 1) for each in resources
        ]

    codes = [answer.responses[0].error_code for answer in answers]
    assert codes == [ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST]


async def test_sync_with_an_empty_protocol_is_about_the_member_first(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.ask(GROUP_READY, 4)
        request = SyncGroupRequest(group_id="g", protocol_type="consumer", protocol_name="")

        assert (await broker.ask(request, 5)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_reassignment_of_nothing_allows_another_factor(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        request = AlterPartitionReassignmentsRequest(topics=[], allow_replication_factor_change=False)

        assert (await broker.ask(request, 1)).allow_replication_factor_change

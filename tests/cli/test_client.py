import pytest

from ottla.cli.client import EARLIEST, LATEST, Client
from ottla.cli.failures import ClientError, NoAnswer, Refused
from ottla.cli.operations.groups import delete_group
from ottla.cli.operations.topics import create_topic, existing_topic
from ottla.protocol.address import Address
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.cli.fake_broker import FakeBroker


def client_of(*brokers: FakeBroker, timeout_s: float = 5) -> Client:
    return Client([Address("127.0.0.1", broker.port) for broker in brokers], timeout_s)


def topic(name: str, *leaders: int) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=leader, replica_nodes=[leader], isr_nodes=[leader])
        for index, leader in enumerate(leaders)
    ]
    return MetadataResponseTopic(name=name, partitions=partitions)


def offsets(topic_name: str, index: int, *, offset: int = -1, error_code: int = 0) -> ListOffsetsResponse:
    row = ListOffsetsPartitionResponse(partition_index=index, offset=offset, error_code=error_code)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic_name, partitions=[row])])


def coordinator(group: str, node_id: int, port: int, error_code: int = 0) -> FindCoordinatorResponse:
    row = Coordinator(key=group, node_id=node_id, host="127.0.0.1", port=port, error_code=error_code)
    return FindCoordinatorResponse(coordinators=[row], node_id=node_id, host="127.0.0.1", port=port)


def deleted(group: str, error_code: int = 0) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group, error_code=error_code)])


async def test_any_bootstrap_address_that_answers_will_do() -> None:
    with FakeBroker() as broker:
        async with Client([Address("127.0.0.1", 1), Address("127.0.0.1", broker.port)], 5) as client:
            await client.metadata(None)


async def test_no_bootstrap_address_that_answers_is_one_sentence() -> None:
    with pytest.raises(NoAnswer, match=r"cannot reach 127\.0\.0\.1:1: nothing listens there"):
        async with Client([Address("127.0.0.1", 1)], 5):
            pass


async def test_each_leader_is_asked_for_the_offsets_of_its_partitions() -> None:
    with FakeBroker() as first, FakeBroker() as second:
        first.has_topics(topic("t", 0, 1), brokers=[first, second])
        first.answer(ListOffsetsRequest, offsets("t", 0, offset=7))
        second.answer(ListOffsetsRequest, offsets("t", 1, offset=9))
        async with client_of(first) as client:
            found = await client.list_offsets([("t", 1), ("t", 0)], LATEST)

    assert found == {("t", 0): 7, ("t", 1): 9}


async def test_a_leader_that_has_moved_is_looked_up_again() -> None:
    with FakeBroker() as broker:
        broker.has_topics(topic("t", 0))
        broker.answer(ListOffsetsRequest, offsets("t", 0, error_code=6), offsets("t", 0, offset=3))
        async with client_of(broker) as client:
            assert await client.list_offsets([("t", 0)], EARLIEST) == {("t", 0): 3}


async def test_time_runs_out_for_what_never_passes() -> None:
    with FakeBroker() as broker:
        broker.has_topics(topic("t", 0))
        broker.answer(ListOffsetsRequest, offsets("t", 0, error_code=6))
        async with client_of(broker, timeout_s=0.2) as client:
            with pytest.raises(Refused, match="cannot read the offsets of t-0"):
                await client.list_offsets([("t", 0)], EARLIEST)


async def test_what_does_not_pass_is_not_asked_again() -> None:
    with FakeBroker() as broker:
        broker.has_topics(topic("t", 0))
        broker.answer(ListOffsetsRequest, offsets("t", 0, error_code=29))
        async with client_of(broker) as client:
            with pytest.raises(Refused, match="cannot read the offsets of t-0: access is denied"):
                await client.list_offsets([("t", 0)], EARLIEST)

    assert len(broker.requests(ListOffsetsRequest)) == 1


async def test_a_partition_that_does_not_exist() -> None:
    with FakeBroker() as broker:
        broker.has_topics(topic("t", 0))
        async with client_of(broker) as client:
            with pytest.raises(ClientError, match="topic t has no partition 1"):
                await client.list_offsets([("t", 1)], EARLIEST)


@pytest.mark.parametrize("version", [0, 3, 6])
async def test_a_coordinator_that_has_moved_is_found_again(version: int) -> None:
    with FakeBroker() as first, FakeBroker() as second:
        first.ranges[FindCoordinatorRequest.API_KEY] = (0, version)
        first.answer(FindCoordinatorRequest, coordinator("g", 0, first.port), coordinator("g", 1, second.port))
        first.answer(DeleteGroupsRequest, deleted("g", error_code=16))
        second.answer(DeleteGroupsRequest, deleted("g"))
        async with client_of(first) as client:
            await delete_group(client, "g")

    assert len(second.requests(DeleteGroupsRequest)) == 1


async def test_unreachable_advertised_address_is_explained() -> None:
    with FakeBroker() as broker:
        node = MetadataResponseBroker(node_id=7, host="inside.invalid", port=9092)
        broker.answer(MetadataRequest, MetadataResponse(brokers=[node], topics=[topic("t", 7)]))
        async with client_of(broker, timeout_s=0.2) as client:
            with pytest.raises(ClientError) as raised:
                await client.list_offsets([("t", 0)], LATEST)

    assert str(raised.value) == (
        "cannot reach inside.invalid:9092: the host name is not known; broker 7 advertises this address to its clients"
    )


async def test_a_coordinator_that_is_gone_is_found_again() -> None:
    with FakeBroker() as first:
        first.answer(FindCoordinatorRequest, coordinator("g", 1, 1), coordinator("g", 0, first.port))
        first.answer(DeleteGroupsRequest, deleted("g"))
        async with client_of(first) as client:
            await delete_group(client, "g")


async def test_the_controller_is_asked_to_change_topics() -> None:
    with FakeBroker() as controller, FakeBroker() as bootstrap:
        bootstrap.has_topics(brokers=[controller, bootstrap])
        controller.answer(CreateTopicsRequest, CreateTopicsResponse(topics=[CreatableTopicResult(name="t")]))
        async with client_of(bootstrap) as client:
            await create_topic(client, "t", partitions=2, replication_factor=None, configs={"retention.ms": "1"})

    (request,) = controller.requests(CreateTopicsRequest)
    assert (request.topics[0].num_partitions, request.topics[0].replication_factor) == (2, -1)


async def test_a_broker_that_knows_no_default_gets_numbers() -> None:
    with FakeBroker() as broker:
        broker.ranges[CreateTopicsRequest.API_KEY] = (0, 3)
        broker.answer(CreateTopicsRequest, CreateTopicsResponse(topics=[CreatableTopicResult(name="t")]))
        async with client_of(broker) as client:
            await create_topic(client, "t", partitions=None, replication_factor=None, configs={})

    (request,) = broker.requests(CreateTopicsRequest)
    assert (request.topics[0].num_partitions, request.topics[0].replication_factor) == (1, 1)


async def test_a_topic_that_is_being_created_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cli.client.FIRST_PAUSE_S", 0.001)
    absent = MetadataResponse(topics=[MetadataResponseTopic(name="t", error_code=3)])
    with FakeBroker() as broker:
        broker.answer(MetadataRequest, absent, absent, MetadataResponse(topics=[topic("t", 0)]))
        async with client_of(broker) as client:
            assert (await existing_topic(client, "t", create_missing=True)).name == "t"

            broker.answer(MetadataRequest, absent)
            with pytest.raises(Refused, match="topic t: it does not exist"):
                await existing_topic(client, "t", create_missing=True)

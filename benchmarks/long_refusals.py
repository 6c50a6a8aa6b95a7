"""The longest step of a broker's event loop for one request whose sender may do nothing of what it names:
`python -m benchmarks long_refusals`.

Each request names 10,000 topics, and no ACL allows one of them.
"""

from collections.abc import Callable
from typing import Any

from benchmarks.figure import Figure
from benchmarks.long_requests import NAMED, RECORDS, Long, longest_steps
from ottla.broker.config.server_security import STANDARD_AUTHORIZER
from ottla.protocol.messages import incremental_alter_configs as incremental
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.schema import Message

SECURED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
TYPE_OF_TOPICS = 2


def _topics(make: Callable[[str], Any], request: Callable[[list[Any]], Message]) -> Callable[[int], Message]:
    """Of so many topics."""
    return lambda count: request([make(f"denied-{number}") for number in range(count)])


_DATA = [PartitionProduceData(index=0, records=memoryview(RECORDS))]
_LATEST = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
_TO_DELETE = [DeleteRecordsPartition(partition_index=0, offset=0)]

REQUESTS = {
    "Produce": Long(
        _topics(
            lambda name: TopicProduceData(name=name, partition_data=_DATA),
            lambda topics: ProduceRequest(acks=1, timeout_ms=1_000, topic_data=topics),
        ),
        ProduceResponse,
        9,
    ),
    "ListOffsets": Long(
        _topics(
            lambda name: ListOffsetsTopic(name=name, partitions=_LATEST),
            lambda topics: ListOffsetsRequest(replica_id=-1, topics=topics),
        ),
        ListOffsetsResponse,
        5,
    ),
    "Metadata": Long(
        _topics(
            lambda name: MetadataRequestTopic(name=name),
            lambda topics: MetadataRequest(topics=topics, allow_auto_topic_creation=False),
        ),
        MetadataResponse,
        9,
    ),
    "DeleteRecords": Long(
        _topics(
            lambda name: DeleteRecordsTopic(name=name, partitions=_TO_DELETE),
            lambda topics: DeleteRecordsRequest(topics=topics, timeout_ms=1_000),
        ),
        DeleteRecordsResponse,
        1,
    ),
    "CreateTopics": Long(
        _topics(
            lambda name: CreatableTopic(name=name, num_partitions=1, replication_factor=1),
            lambda topics: CreateTopicsRequest(topics=topics, timeout_ms=1_000),
        ),
        CreateTopicsResponse,
        5,
    ),
    "DeleteTopics": Long(
        _topics(str, lambda names: DeleteTopicsRequest(topic_names=names, timeout_ms=1_000)), DeleteTopicsResponse, 5
    ),
    "CreatePartitions": Long(
        _topics(
            lambda name: CreatePartitionsTopic(name=name, count=2, assignments=None),
            lambda topics: CreatePartitionsRequest(topics=topics, timeout_ms=1_000),
        ),
        CreatePartitionsResponse,
        2,
    ),
    "DescribeConfigs": Long(
        _topics(
            lambda name: DescribeConfigsResource(resource_type=TYPE_OF_TOPICS, resource_name=name),
            lambda resources: DescribeConfigsRequest(resources=resources),
        ),
        DescribeConfigsResponse,
        4,
    ),
    "IncrementalAlterConfigs": Long(
        _topics(
            lambda name: incremental.AlterConfigsResource(resource_type=TYPE_OF_TOPICS, resource_name=name),
            lambda resources: incremental.IncrementalAlterConfigsRequest(resources=resources),
        ),
        incremental.IncrementalAlterConfigsResponse,
        1,
    ),
}


def figures() -> list[Figure]:
    return longest_steps(REQUESTS, f"of {NAMED:,} topics that are denied", SECURED)

"""DescribeProducers: the producers that partitions remember, and their open transactions (KIP-664).

Any replica answers, as in Kafka."""

from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.topics import check_topic_name
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

_NO_SEQUENCE = -1


def handle(
    replicas: ReplicaManager,
    context: RequestContext,  # noqa: ARG001
    request: DescribeProducersRequest,
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_partition(replicas, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _partition(replicas: ReplicaManager, topic: str, index: int) -> PartitionResponse:
    try:
        check_topic_name(topic)
        states = replicas.partition(topic, index).log.producers.states
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=int(error.code), error_message=str(error))
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.batches[-1].last_sequence if state.batches else _NO_SEQUENCE,
                last_timestamp=state.last_timestamp,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=state.transaction_first_offset,
            )
            for producer_id, state in states.items()
        ],
    )

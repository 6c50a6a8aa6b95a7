"""DescribeProducers: the producers that partitions remember, and their open transactions (KIP-664).

Any replica answers, as in Kafka."""

from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.runtime import ITEMS_PER_SLICE, Runtime, in_slices, now_or_later
from ottla.broker.server.request_context import RequestContext, check_repetitions
from ottla.cluster.topics import check_topic_name
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.storage import producer_entry as storage

_NO_SEQUENCE = -1


def handle(
    replicas: ReplicaManager, runtime: Runtime, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse | None:
    asked = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    check_repetitions("partition", asked, len(asked))
    response = now_or_later(_response(replicas, request), len(asked) + sum(_count(replicas, *each) for each in asked))
    if isinstance(response, DescribeProducersResponse):
        return response
    context.respond_later(runtime, response)
    return None


def _count(replicas: ReplicaManager, topic: str, index: int) -> int:
    """How many producers it has; some slices of them where they are to be read first."""
    partition = replicas.find(topic, index)
    if partition is None:
        return 0
    known = partition.log.known_producers
    return len(known) if known is not None else ITEMS_PER_SLICE


async def _response(replicas: ReplicaManager, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[await _partition(replicas, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


async def _partition(replicas: ReplicaManager, topic: str, index: int) -> PartitionResponse:
    try:
        check_topic_name(topic)
        # As they are now: the next slice may come after other appends.
        states = replicas.partition(topic, index).log.producers.states.copy()
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=int(error.code), error_message=str(error))
    return PartitionResponse(partition_index=index, active_producers=await in_slices(_producer, states.items()))


def _producer(known: tuple[int, storage.ProducerState]) -> ProducerState:
    producer_id, state = known
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=state.epoch,
        last_sequence=state.batches[-1].last_sequence if state.batches else _NO_SEQUENCE,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=state.transaction_first_offset,
    )

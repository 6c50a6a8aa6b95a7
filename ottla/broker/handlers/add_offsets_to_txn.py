"""AddOffsetsToTxn: the group's partition of `__consumer_offsets` becomes part of a transaction (§13.4.3).

v2 knows PRODUCER_FENCED, v3 is flexible, v4 knows another error.
"""

from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.broker.handlers.end_txn import FENCED_SINCE
from ottla.broker.metadata.auto_topic_creation import AutoTopicCreationManager
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.image import CONSUMER_OFFSETS
from ottla.coordinator.runtime.hashing import partition_for
from ottla.coordinator.transactions.events import AddPartitions
from ottla.protocol.errors import ErrorCode, producer_error
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


def handle(
    transactions: TransactionCoordinator,
    metadata: ClusterMetadata,
    auto_topic_creation: AutoTopicCreationManager,
    context: RequestContext,
    request: AddOffsetsToTxnRequest,
) -> AddOffsetsToTxnResponse | None:
    topic = metadata.image.topic(CONSUMER_OFFSETS)
    if topic is None:
        auto_topic_creation.ensure_coordinator_topic(CONSUMER_OFFSETS)
        return AddOffsetsToTxnResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    knows_fenced = context.api_version >= FENCED_SINCE
    event = AddPartitions(
        transactions.new_token(),
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        frozenset({(CONSUMER_OFFSETS, partition_for(request.group_id, len(topic.partitions)))}),
        group_id=request.group_id,
    )
    return transactions.ask(
        context,
        event,
        lambda error: AddOffsetsToTxnResponse(error_code=int(producer_error(error, knows_fenced=knows_fenced))),
    )

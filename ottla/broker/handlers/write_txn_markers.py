"""WriteTxnMarkers: the coordinator of a transaction ends it in the partitions that this broker leads (§39.1).

Brokers send it, and administrators who abort a transaction that hangs. A marker ends a transaction whatever its
producer says. So where no authorizer decides who may do that, only the listener of brokers takes it (§39.1.4).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

from ottla.broker.replicas.transaction_markers import MarkerAppend, TransactionMarkers
from ottla.broker.server.peer_connection import BROKER_CLIENT_ID
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.transactions.events import WriteMarkers
from ottla.coordinator.transactions.facts import Outcome, TransactionEndedByOperator
from ottla.coordinator.transactions.participants import Participant
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.protocol.records.control import TransactionMarker


async def handle(
    transaction_markers: TransactionMarkers, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    is_of_brokers = context.connection.is_inter_broker
    if not is_of_brokers and context.access is None:
        appends = _appends(request)
        return _response(appends, [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * len(appends))
    client_id = context.client_id
    appends, codes = await _append_all(transaction_markers, request)
    if not is_of_brokers or client_id is None or not client_id.startswith(BROKER_CLIENT_ID):
        _report(transaction_markers, appends, codes, client_id)
    return _response(appends, codes)


def write_markers(
    transaction_markers: TransactionMarkers,
    command: WriteMarkers,
    partitions: Sequence[Participant],
    coordinator_epoch: int,
    done: Callable[[Sequence[ErrorCode]], None],
) -> None:
    """For the coordinator on this broker."""
    marker = TransactionMarker(command.commit, coordinator_epoch)
    producer = command.producer_id, command.producer_epoch
    appends = [MarkerAppend(topic, index, *producer, marker, command.client_version) for topic, index in partitions]
    transaction_markers.append_some(appends, done)


async def _append_all(
    transaction_markers: TransactionMarkers, request: WriteTxnMarkersRequest
) -> tuple[list[MarkerAppend], list[ErrorCode]]:
    appends = _appends(request)
    return appends, await transaction_markers.append_all(appends) if appends else []


def _report(
    transaction_markers: TransactionMarkers, appends: list[MarkerAppend], codes: list[ErrorCode], client_id: str | None
) -> None:
    for append, code in zip(appends, codes, strict=True):
        if code is ErrorCode.NONE:
            fact = TransactionEndedByOperator(
                topic=append.topic,
                partition=append.partition,
                producer_id=append.producer_id,
                producer_epoch=append.producer_epoch,
                outcome=Outcome.COMMIT if append.marker.is_commit else Outcome.ABORT,
                client_id=client_id,
            )
            transaction_markers.report(fact)


def _appends(request: WriteTxnMarkersRequest) -> list[MarkerAppend]:
    return [
        MarkerAppend(
            topic.name,
            index,
            marker.producer_id,
            marker.producer_epoch,
            TransactionMarker(marker.transaction_result, marker.coordinator_epoch),
            marker.transaction_version,
        )
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]


def _response(appends: list[MarkerAppend], codes: list[ErrorCode]) -> WriteTxnMarkersResponse:
    """Markers of one producer id share a result, as in Kafka."""
    results: dict[int, dict[str, dict[int, ErrorCode]]] = defaultdict(lambda: defaultdict(dict))
    for append, code in zip(appends, codes, strict=True):
        results[append.producer_id][append.topic][append.partition] = code
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=int(code))
                            for index, code in partitions.items()
                        ],
                    )
                    for name, partitions in topics.items()
                ],
            )
            for producer_id, topics in results.items()
        ]
    )

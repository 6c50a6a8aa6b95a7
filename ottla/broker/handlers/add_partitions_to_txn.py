"""AddPartitionsToTxn: partitions become part of a transaction, or are looked for in it (§13.4).

Up to v3 a client sends it, for one transaction; from v4 on leaders of partitions do, for several, and may ask without
adding any (KIP-890). If one partition cannot be added, none of its transaction is. v2 knows PRODUCER_FENCED, v3 is
flexible.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from ottla.broker.coordinators.add_partitions_to_txn import Answered, Question
from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.broker.handlers.end_txn import FENCED_SINCE
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.image import CONSUMER_OFFSETS, INTERNAL_TOPICS, MetadataImage
from ottla.coordinator.transactions.events import AddPartitions, VerifyPartitions, VerifyResult
from ottla.coordinator.transactions.participants import Participant
from ottla.protocol.errors import ErrorCode, producer_error
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)

OF_BROKERS_SINCE = 4
_KIP_890 = 2
# The offsets of a group are part of a transaction, and the leader of its partition says so.
_INTERNAL_TO_BROKERS = INTERNAL_TOPICS - {CONSUMER_OFFSETS}

Codes: TypeAlias = dict[Participant, ErrorCode]


def handle(
    transactions: TransactionCoordinator,
    metadata: ClusterMetadata,
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse | None:
    if context.api_version >= OF_BROKERS_SINCE:
        return _of_brokers(transactions, metadata.image, context, request)
    return _of_a_client(transactions, metadata.image, context, request)


def _of_a_client(
    transactions: TransactionCoordinator,
    image: MetadataImage,
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse | None:
    partitions = _participants(request.v3_and_below_topics)
    refused = _refused(image, partitions, INTERNAL_TOPICS)
    if refused:
        return _client_response(refused)
    knows_fenced = context.api_version >= FENCED_SINCE
    event = AddPartitions(
        transactions.new_token(),
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        frozenset(partitions),
    )
    return transactions.ask(
        context,
        event,
        lambda error: _client_response(dict.fromkeys(partitions, producer_error(error, knows_fenced=knows_fenced))),
    )


def _of_brokers(
    transactions: TransactionCoordinator,
    image: MetadataImage,
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse | None:
    if not context.connection.is_inter_broker:
        return AddPartitionsToTxnResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    codes: dict[str, Codes] = {}
    events: list[AddPartitions | VerifyPartitions] = []
    for asked in request.transactions:
        partitions = _participants(asked.topics)
        codes[asked.transactional_id] = _refused(image, partitions, _INTERNAL_TO_BROKERS)
        if not codes[asked.transactional_id]:
            question = Question(
                asked.transactional_id, asked.producer_id, asked.producer_epoch, registers=not asked.verify_only
            )
            events.append(_event(transactions.new_token(), question, frozenset(partitions)))
    return transactions.ask_each(context, events, lambda results: _brokers_response(codes, events, results))


def ask_here(
    runtime: Runtime,
    transactions: TransactionCoordinator,
    metadata: ClusterMetadata,
    question: Question,
    partitions: Collection[Participant],
    answered: Answered,
) -> None:
    """For the leaders of partitions on this broker: `answered` is called once, perhaps before this returns."""
    refused = _refused(metadata.image, partitions, _INTERNAL_TO_BROKERS)
    if refused:
        answered(refused)
        return

    event = _event(transactions.new_token(), question, frozenset(partitions))
    # What comes later comes in a step of the coordinator, where nothing else is to be appended.
    result = transactions.ask_here(event, lambda later: runtime.soon(lambda: answered(_codes(later, partitions))))
    if result is not None:
        answered(_codes(result, partitions))


def _brokers_response(
    codes: dict[str, Codes],
    events: Sequence[AddPartitions | VerifyPartitions],
    results: Sequence[ErrorCode | VerifyResult],
) -> AddPartitionsToTxnResponse:
    """`codes` has the transactions that the coordinator was not asked about."""
    for event, result in zip(events, results, strict=True):
        codes[event.transactional_id] = _codes(result, sorted(event.partitions))
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(transactional_id=name, topic_results=_results(known))
            for name, known in codes.items()
        ]
    )


def _event(token: int, question: Question, partitions: frozenset[Participant]) -> AddPartitions | VerifyPartitions:
    producer = question.transactional_id, question.producer_id, question.producer_epoch
    if question.registers:
        return AddPartitions(token, *producer, partitions, client_version=_KIP_890)
    return VerifyPartitions(token, *producer, partitions)


def _codes(result: ErrorCode | VerifyResult, partitions: Iterable[Participant]) -> Codes:
    return {partition: _code(result, partition) for partition in partitions}


def _code(result: ErrorCode | VerifyResult, partition: Participant) -> ErrorCode:
    if isinstance(result, VerifyResult):
        return ErrorCode.TRANSACTION_ABORTABLE if partition in result.missing else result.error
    return result


def _participants(topics: Iterable[AddPartitionsToTxnTopic]) -> list[Participant]:
    return [(topic.name, partition) for topic in topics for partition in topic.partitions]


def _refused(image: MetadataImage, partitions: Collection[Participant], internal: frozenset[str]) -> Codes:
    """What each is answered if one of them cannot be part of a transaction; nothing if all can."""
    codes: Codes = {}
    for topic, index in partitions:
        if topic in internal:
            codes[topic, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif image.partition(topic, index) is None:
            codes[topic, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | codes if codes else {}


def _client_response(codes: Codes) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(codes))


def _results(codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), code in codes.items():
        result = AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=int(code))
        topics.setdefault(topic, []).append(result)
    return [AddPartitionsToTxnTopicResult(name=name, results_by_partition=results) for name, results in topics.items()]

"""Guards of the APIs about producers and transactions (§62.4). AddOffsetsToTxn and EndTxn have none of their own
(`Need.top`)."""

from collections.abc import Callable
from typing import Any

from ottla.broker.authorization.access import Access
from ottla.broker.authorization.refusals import count_refusals, refusal
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.image import INTERNAL_TOPICS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.messages.describe_transactions import DescribedTransaction, DescribeTransactionsRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.security.acl import AclOperation, ResourceType

OF_BROKERS_SINCE = 4
ID_CODE = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def guard_init_producer_id(
    access: Access, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | None:
    name = request.transactional_id
    if name is not None:
        if access.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
            return None
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif access.allows_cluster(AclOperation.IDEMPOTENT_WRITE, is_logged=False) or access.allows_some(
        AclOperation.WRITE, ResourceType.TOPIC
    ):
        return None
    else:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    count_refusals(context, code, 1)
    return InitProducerIdResponse(error_code=int(code), producer_id=-1, producer_epoch=-1)


def guard_add_partitions(
    access: Access, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | None:
    if context.api_version >= OF_BROKERS_SINCE:
        allowed = access.allows_cluster(AclOperation.CLUSTER_ACTION)
        return None if allowed else refusal(context, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    name = request.v3_and_below_transactional_id
    topics = request.v3_and_below_topics
    if not access.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        count_refusals(context, code, 1)
        return _added(topics, lambda topic, index: code)  # noqa: ARG005
    denied = access.denied_names(AclOperation.WRITE, ResourceType.TOPIC, [topic.name for topic in topics])
    if not denied:
        return None
    count_refusals(context, ErrorCode.TOPIC_AUTHORIZATION_FAILED, len(denied))
    denied |= INTERNAL_TOPICS

    def code_of(topic: str, index: int) -> ErrorCode:
        if topic in denied:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        is_missing = access.image.partition(topic, index) is None
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_missing else ErrorCode.OPERATION_NOT_ATTEMPTED

    return _added(topics, code_of)


def _added(topics: Any, code_of: Callable[[str, int], ErrorCode]) -> AddPartitionsToTxnResponse:
    codes: dict[str, dict[int, ErrorCode]] = {}
    for topic in topics:
        codes.setdefault(topic.name, {}).update((index, code_of(topic.name, index)) for index in topic.partitions)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=int(code))
                    for index, code in of_topic.items()
                ],
            )
            for name, of_topic in codes.items()
        ]
    )


def guard_markers(
    access: Access, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | None:
    if access.allows_cluster(AclOperation.ALTER, is_logged=False) or access.allows_cluster(AclOperation.CLUSTER_ACTION):
        return None
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    count_refusals(context, code, len(request.markers))
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=int(code))
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def guard_txn_offset_commit(
    access: Access, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | None:
    code = None
    if not access.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not access.allows(AclOperation.READ, ResourceType.GROUP, request.group_id):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if code is not None:
        count_refusals(context, code, 1)
        return TxnOffsetCommitResponse(topics=[_refused_commit(topic, code) for topic in request.topics])
    denied = access.take_denied(AclOperation.READ, ResourceType.TOPIC, request.topics, lambda topic: str(topic.name))
    if denied:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        count_refusals(context, code, len(denied))
        access.amend(lambda response: response.topics.extend(_refused_commit(topic, code) for topic in denied))
    return None


def _refused_commit(topic: Any, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    partitions = [
        TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=int(code))
        for each in topic.partitions
    ]
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions)


def guard_describe_transactions(access: Access, context: RequestContext, request: DescribeTransactionsRequest) -> None:
    kind = ResourceType.TRANSACTIONAL_ID
    denied = access.take_denied(AclOperation.DESCRIBE, kind, request.transactional_ids, str)
    refused = [DescribedTransaction(error_code=ID_CODE, transactional_id=each) for each in denied]
    count_refusals(context, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, len(refused))

    def amend(response: Any) -> None:
        for state in response.transaction_states:
            names = [topic.topic for topic in state.topics]
            hidden = access.denied_names(AclOperation.DESCRIBE, ResourceType.TOPIC, names, is_logged=False)
            state.topics[:] = [topic for topic in state.topics if topic.topic not in hidden]
        response.transaction_states.extend(refused)

    access.amend(amend)


def guard_list_transactions(
    access: Access,
    context: RequestContext,  # noqa: ARG001
    request: ListTransactionsRequest,  # noqa: ARG001
) -> None:
    kind = ResourceType.TRANSACTIONAL_ID
    access.amend(
        lambda response: access.drop_denied(
            AclOperation.DESCRIBE, kind, response.transaction_states, lambda each: str(each.transactional_id)
        )
    )


GUARDS: dict[int, Callable[[Access, RequestContext, Any], Any | None]] = {
    22: guard_init_producer_id,
    24: guard_add_partitions,
    27: guard_markers,
    28: guard_txn_offset_commit,
    65: guard_describe_transactions,
    66: guard_list_transactions,
}

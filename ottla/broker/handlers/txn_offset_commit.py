"""TxnOffsetCommit: a group's positions are stored, and valid once the producer's transaction is committed (§46)."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.handlers.offset_commit import Errors, committed_topics, known_offsets
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.events import CommitOffsets
from ottla.coordinator.results import CommitResult
from ottla.coordinator.runtime.effects import ProducerIdAndEpoch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_REGISTERS_FROM = 5

# The version that knows the code, and what is said before. aiokafka, which sends version 0, tries again after
# COORDINATOR_NOT_AVAILABLE and not after CONCURRENT_TRANSACTIONS.
_KNOWN_FROM: Final[Mapping[ErrorCode, tuple[int, ErrorCode]]] = MappingProxyType(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: (2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ErrorCode.CONCURRENT_TRANSACTIONS: (3, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ErrorCode.TRANSACTION_ABORTABLE: (4, ErrorCode.INVALID_TXN_STATE),
    }
)


def handle(
    groups: GroupCoordinator, metadata: ClusterMetadata, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | None:
    offsets, errors = known_offsets(metadata, request.topics)
    if not offsets:
        return _response(metadata, request, errors)
    version = context.api_version
    event = CommitOffsets(
        token=groups.new_token(),
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id,
        offsets=tuple(offsets),
        producer=ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
    )
    respond = partial(_respond, metadata, request, version, errors)
    return groups.commit_in_transaction(
        context, request.transactional_id, event, respond, register=version >= _REGISTERS_FROM
    )


def _respond(
    metadata: ClusterMetadata, request: TxnOffsetCommitRequest, version: int, errors: Errors, result: CommitResult
) -> TxnOffsetCommitResponse:
    results = {(each.topic, each.partition): _as_known(each.error, version) for each in result.partitions}
    return _response(metadata, request, {**errors, **results})


def _as_known(error: ErrorCode, version: int) -> ErrorCode:
    known_from, before = _KNOWN_FROM.get(error, (0, error))
    return error if version >= known_from else before


def _response(metadata: ClusterMetadata, request: TxnOffsetCommitRequest, errors: Errors) -> TxnOffsetCommitResponse:
    topics = committed_topics(
        metadata, request.topics, errors, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition
    )
    return TxnOffsetCommitResponse(topics=topics)

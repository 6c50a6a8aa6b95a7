"""OffsetCommit: a group's positions are stored (§9.1, §9.2)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.events import CommitOffsets, OffsetToCommit
from ottla.coordinator.results import CommitResult
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_GROUP_ID_NOT_FOUND_FROM = 9

Errors = Mapping[tuple[str, int], ErrorCode]
T = TypeVar("T")


def handle(
    groups: GroupCoordinator, metadata: ClusterMetadata, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | None:
    offsets, errors = known_offsets(metadata, request.topics)
    if not offsets:
        return _response(metadata, request, errors)
    event = CommitOffsets(
        token=groups.new_token(),
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        offsets=tuple(offsets),
        retention_time_ms=request.retention_time_ms,
        supports_group_id_not_found=context.api_version >= _GROUP_ID_NOT_FOUND_FROM,
    )

    def respond(result: CommitResult) -> OffsetCommitResponse:
        return _response(
            metadata, request, errors | {(each.topic, each.partition): each.error for each in result.partitions}
        )

    return groups.ask(context, event, respond)


def known_offsets(
    metadata: ClusterMetadata, topics: Sequence[Any]
) -> tuple[list[OffsetToCommit], dict[tuple[str, int], ErrorCode]]:
    """The offsets of partitions that exist, and the errors of those that do not (§9.1.1)."""
    image = metadata.image
    offsets: list[OffsetToCommit] = []
    errors: dict[tuple[str, int], ErrorCode] = {}
    for topic in topics:
        for partition in topic.partitions:
            index = partition.partition_index
            if image.partition(topic.name, index) is None:
                errors[topic.name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            offsets.append(
                OffsetToCommit(
                    topic.name,
                    index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata,
                )
            )
    return offsets, errors


def _response(metadata: ClusterMetadata, request: OffsetCommitRequest, errors: Errors) -> OffsetCommitResponse:
    topics = committed_topics(
        metadata, request.topics, errors, OffsetCommitResponseTopic, OffsetCommitResponsePartition
    )
    return OffsetCommitResponse(topics=topics)


def committed_topics(
    metadata: ClusterMetadata,
    topics: Sequence[Any],
    errors: Errors,
    topic_result: Callable[..., T],
    partition_result: Callable[..., Any],
) -> list[T]:
    """What each partition of `topics` is answered, as these classes of the response."""
    return [
        topic_result(
            name=topic.name,
            partitions=[
                partition_result(
                    partition_index=partition.partition_index,
                    error_code=int(errors[topic.name, partition.partition_index]),
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
        # As in Kafka, which refuses topics that do not exist as they are.
        if topic.partitions or metadata.image.topic(topic.name) is None
    ]

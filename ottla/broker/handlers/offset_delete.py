"""OffsetDelete: an administrator removes a group's offsets (§9.6)."""

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.events import DeleteOffsets
from ottla.coordinator.results import DeleteOffsetsResult
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(
    groups: GroupCoordinator, metadata: ClusterMetadata, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | None:
    known, errors = _known(metadata, request)

    def respond(result: DeleteOffsetsResult) -> OffsetDeleteResponse:
        if result.error:
            return OffsetDeleteResponse(error_code=int(result.error))
        found = {(each.topic, each.partition): each.error for each in result.partitions}
        # As in Kafka, a topic that is known is left out where no partition of it is named.
        named = [topic for topic in request.topics if topic.partitions or metadata.image.topic(topic.name) is None]
        return _response(named, errors | found)

    return groups.ask(context, DeleteOffsets(groups.new_token(), request.group_id, known), respond)


def _known(
    metadata: ClusterMetadata, request: OffsetDeleteRequest
) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], dict[tuple[str, int], ErrorCode]]:
    image = metadata.image
    known: list[tuple[str, tuple[int, ...]]] = []
    errors: dict[tuple[str, int], ErrorCode] = {}
    for topic in request.topics:
        indexes = [partition.partition_index for partition in topic.partitions]
        there = [index for index in indexes if image.partition(topic.name, index) is not None]
        if there:
            known.append((topic.name, tuple(there)))
        missing = set(indexes).difference(there)
        errors |= dict.fromkeys(((topic.name, index) for index in missing), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return tuple(known), errors


def _response(topics: list[OffsetDeleteRequestTopic], errors: dict[tuple[str, int], ErrorCode]) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=int(errors.get((topic.name, partition.partition_index), ErrorCode.NONE)),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in topics
        ]
    )

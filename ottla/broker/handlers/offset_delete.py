"""OffsetDelete: an administrator removes a group's offsets (§9.6)."""

from ottla.broker.coordinators.group_coordinator import GroupService
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.server.deferred_response import Answer
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.events import DeleteOffsets
from ottla.coordinator.results import DeleteOffsetsResult
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(
    groups: GroupService, metadata: ClusterMetadata, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | None:
    known, errors = _known(metadata, request)
    answer = Answer(context)

    def deliver(result: DeleteOffsetsResult) -> None:
        if result.error:
            answer.give(OffsetDeleteResponse(error_code=int(result.error)))
            return
        found = {(each.topic, each.partition): each.error for each in result.partitions}
        answer.give(_response(request, errors | found))

    token = groups.ask(lambda token: DeleteOffsets(token, request.group_id, known), deliver)
    return answer.now_or_parked(lambda: groups.forget(token))


def _known(
    metadata: ClusterMetadata, request: OffsetDeleteRequest
) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], dict[tuple[str, int], ErrorCode]]:
    image = metadata.image
    known: list[tuple[str, tuple[int, ...]]] = []
    errors: dict[tuple[str, int], ErrorCode] = {}
    for topic in request.topics:
        indexes = [partition.partition_index for partition in topic.partitions]
        there = tuple(index for index in indexes if image.partition(topic.name, index) is not None)
        if there:
            known.append((topic.name, there))
        errors |= {(topic.name, index): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for index in indexes if index not in there}
    return tuple(known), errors


def _response(request: OffsetDeleteRequest, errors: dict[tuple[str, int], ErrorCode]) -> OffsetDeleteResponse:
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
            for topic in request.topics
        ]
    )

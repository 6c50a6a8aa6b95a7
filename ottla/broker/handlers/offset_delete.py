"""OffsetDelete: an administrator removes a group's offsets (§9.6)."""

from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.runtime import in_slices_by_topic, now_or_later
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.events import DeleteOffsets
from ottla.coordinator.results import DeleteOffsetsResult
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

Errors = Mapping[tuple[str, int], ErrorCode]


def handle(
    groups: GroupCoordinator, metadata: ClusterMetadata, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | None:
    known, errors = _known(metadata, request)

    def respond(result: DeleteOffsetsResult) -> OffsetDeleteResponse | Coroutine[Any, Any, OffsetDeleteResponse]:
        if result.error:
            return OffsetDeleteResponse(error_code=int(result.error))
        found = {(each.topic, each.partition): each.error for each in result.partitions}
        # As in Kafka, a topic that is known is left out where no partition of it is named.
        named = [topic for topic in request.topics if topic.partitions or metadata.image.topic(topic.name) is None]
        return now_or_later(_response(named, errors | found), sum(len(topic.partitions) for topic in named))

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


def _answer(errors: Errors, topic: str, asked: OffsetDeleteRequestPartition) -> OffsetDeleteResponsePartition:
    index = asked.partition_index
    return OffsetDeleteResponsePartition(
        partition_index=index, error_code=int(errors.get((topic, index), ErrorCode.NONE))
    )


async def _response(topics: list[OffsetDeleteRequestTopic], errors: Errors) -> OffsetDeleteResponse:
    asked = ((topic.name, topic.partitions) for topic in topics)
    answers = await in_slices_by_topic(partial(_answer, errors), asked)
    return OffsetDeleteResponse(
        topics=[OffsetDeleteResponseTopic(name=name, partitions=partitions) for name, partitions in answers]
    )

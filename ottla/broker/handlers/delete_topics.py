"""DeleteTopics: by name, from version 6 on also by topic id."""

from collections import Counter
from typing import NamedTuple

from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.metadata.topic_admin import TopicAdminManager
from ottla.broker.metadata.topic_plans import Outcome, partition_changes
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.image import ZERO_ID, MetadataImage, TopicInfo
from ottla.protocol.errors import ErrorCode, InvalidRequest, KafkaError, UnknownTopicId
from ottla.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

_DELETION_DISABLED_FROM = 3
_STRICT_QUOTA_FROM = 5
_TOPIC_ID_FROM = 6


class _Asked(NamedTuple):
    """`name` is None for a topic that was asked for by id."""

    name: str | None
    topic_id: bytes


async def handle(
    topics: TopicAdminManager,
    metadata: ClusterMetadata,
    runtime: Runtime,
    context: RequestContext,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse:
    asked = _asked(request, context.api_version)
    found = [_find(metadata.image, each) for each in asked]
    times = Counter(topic.topic_id for topic in found if topic is not None)
    refused: dict[int, Outcome] = {
        index: error
        for index, (each, topic) in enumerate(zip(asked, found, strict=True))
        if (error := _refusal(each, topic, times)) is not None
    }
    wanted = [index for index in range(len(asked)) if index not in refused]
    outcomes = await topics.delete(
        [found[index] for index in wanted],
        says_disabled=context.api_version >= _DELETION_DISABLED_FROM,
        changes=partition_changes(runtime, context, _STRICT_QUOTA_FROM),
    )
    results: dict[int, Outcome] = dict(zip(wanted, outcomes, strict=True)) | refused
    return DeleteTopicsResponse(
        responses=[_result(each, found[index], results[index]) for index, each in enumerate(asked)]
    )


def _asked(request: DeleteTopicsRequest, version: int) -> list[_Asked]:
    if version < _TOPIC_ID_FROM:
        return [_Asked(name, ZERO_ID) for name in request.topic_names]
    return [_Asked(topic.name, topic.topic_id) for topic in request.topics]


def _find(image: MetadataImage, asked: _Asked) -> TopicInfo | None:
    """None also where both are given: that asks for no topic."""
    if asked.name is None:
        return image.topic_by_id(asked.topic_id)
    return image.topic(asked.name) if asked.topic_id == ZERO_ID else None


def _refusal(asked: _Asked, topic: TopicInfo | None, times: Counter[bytes]) -> KafkaError | None:
    if asked.name is None and asked.topic_id == ZERO_ID:
        return InvalidRequest("Neither topic name nor id were specified.")
    if asked.name is not None and asked.topic_id != ZERO_ID:
        return InvalidRequest("You may not specify both topic name and topic id.")
    if topic is None:
        return UnknownTopicId("there is no topic with this id") if asked.name is None else None
    if times[topic.topic_id] > 1:
        return InvalidRequest(f"topic '{topic.name}' is named twice")
    return None


def _result(asked: _Asked, topic: TopicInfo | None, outcome: Outcome) -> DeletableTopicResult:
    name = topic.name if topic is not None else asked.name
    topic_id = topic.topic_id if topic is not None else asked.topic_id
    if isinstance(outcome, TopicInfo):
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=int(ErrorCode.NONE))
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=int(outcome.code), error_message=str(outcome))

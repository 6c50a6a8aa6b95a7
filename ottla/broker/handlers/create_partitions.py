"""CreatePartitions: topics grow."""

from collections import Counter

from ottla.broker.metadata.topic_commands import MorePartitions, Outcome, TopicService
from ottla.broker.server.request_context import DeferredResponse, RequestContext
from ottla.cluster.image import TopicInfo
from ottla.protocol.errors import InvalidRequest
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def handle(
    topics: TopicService, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse | None:
    deferred = DeferredResponse(context)
    times = Counter(topic.name for topic in request.topics)
    refused = {name: InvalidRequest(f"topic '{name}' is named twice") for name, count in times.items() if count > 1}
    wanted = [topic for topic in request.topics if topic.name not in refused]

    def done(outcomes: list[Outcome]) -> None:
        results = dict(zip((topic.name for topic in wanted), outcomes, strict=True)) | refused
        deferred.complete(CreatePartitionsResponse(results=[_result(name, results[name]) for name in times]))

    topics.create_partitions([_more(topic) for topic in wanted], validate_only=request.validate_only, done=done)
    return deferred.result_or_park()


def _more(topic: CreatePartitionsTopic) -> MorePartitions:
    by_hand = None if topic.assignments is None else [each.broker_ids for each in topic.assignments]
    return MorePartitions(topic.name, topic.count, by_hand)


def _result(name: str, outcome: Outcome) -> CreatePartitionsTopicResult:
    if isinstance(outcome, TopicInfo):
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(name=name, error_code=int(outcome.code), error_message=str(outcome))

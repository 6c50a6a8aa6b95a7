"""CreatePartitions: topics grow."""

from collections import Counter

from ottla.broker.metadata.topic_admin import TopicAdminManager
from ottla.broker.metadata.topic_plans import MorePartitions, Outcome, partition_changes
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.image import TopicInfo
from ottla.protocol.errors import ErrorCode, InvalidRequest, error_for
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

_STRICT_QUOTA_SINCE = 3


async def handle(
    topics: TopicAdminManager,
    runtime: Runtime,
    context: RequestContext,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse:
    times = Counter(topic.name for topic in request.topics)
    refused = {name: InvalidRequest(f"topic '{name}' is named twice") for name, count in times.items() if count > 1}
    if request.timeout_ms < 0:
        # As in Kafka: the time for it was over before it came. One of 0 ms is tried all the same.
        late = error_for(ErrorCode.REQUEST_TIMED_OUT, "The request timed out.")
        return CreatePartitionsResponse(results=[_result(name, refused.get(name, late)) for name in times])
    wanted = [topic for topic in request.topics if topic.name not in refused]
    changes = partition_changes(runtime, context, _STRICT_QUOTA_SINCE)
    more = [_more(topic) for topic in wanted]
    outcomes = await topics.create_partitions(more, validate_only=request.validate_only, changes=changes)
    results = dict(zip((topic.name for topic in wanted), outcomes, strict=True)) | refused
    return CreatePartitionsResponse(results=[_result(name, results[name]) for name in times])


def _more(topic: CreatePartitionsTopic) -> MorePartitions:
    by_hand = None if topic.assignments is None else [each.broker_ids for each in topic.assignments]
    return MorePartitions(topic.name, topic.count, by_hand)


def _result(name: str, outcome: Outcome) -> CreatePartitionsTopicResult:
    if isinstance(outcome, TopicInfo):
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(name=name, error_code=int(outcome.code), error_message=str(outcome))

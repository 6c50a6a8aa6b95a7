"""CreateTopics."""

from collections import Counter

from ottla.broker.config.describe import topic_entries
from ottla.broker.config.server import ServerConfig
from ottla.broker.metadata.topic_admin import TopicAdminManager
from ottla.broker.metadata.topic_plans import NewTopic, Outcome, partition_changes
from ottla.broker.runtime import Runtime, in_slices
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.image import TopicInfo
from ottla.cluster.topics import TopicSpec
from ottla.protocol.errors import InvalidRequest
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_STRICT_QUOTA_SINCE = 6


async def handle(
    topics: TopicAdminManager,
    runtime: Runtime,
    context: RequestContext,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse:
    times = Counter(topic.name for topic in request.topics)
    refused = {name: InvalidRequest(f"topic '{name}' is named twice") for name, count in times.items() if count > 1}
    wanted = [topic for topic in request.topics if topic.name not in refused]
    new_topics = await in_slices(_new_topic, wanted)
    changes = partition_changes(runtime, context, _STRICT_QUOTA_SINCE)
    outcomes = await topics.create(new_topics, validate_only=request.validate_only, changes=changes)
    results = dict(zip((topic.name for topic in wanted), outcomes, strict=True)) | refused
    configs = _Configs(runtime.config)
    return CreateTopicsResponse(topics=await in_slices(lambda name: _result(name, results[name], configs), times))


def _new_topic(topic: CreatableTopic) -> NewTopic:
    spec = TopicSpec(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(each.partition_index, each.broker_ids) for each in topic.assignments],
    )
    return NewTopic(spec, {config.name: config.value for config in topic.configs})


class _Configs:
    """The configs of topics, made once for all topics of a request that have the same of their own."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._made: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}

    def of(self, topic: TopicInfo) -> list[CreatableTopicConfigs]:
        key = tuple(sorted(topic.configs.items()))
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = [
                CreatableTopicConfigs(
                    name=entry.name, value=entry.value, read_only=entry.read_only, config_source=int(entry.source)
                )
                for entry in topic_entries(topic.configs, self._config)
            ]
        return made


def _result(name: str, outcome: Outcome, configs: _Configs) -> CreatableTopicResult:
    if not isinstance(outcome, TopicInfo):
        return CreatableTopicResult(name=name, error_code=int(outcome.code), error_message=str(outcome))
    return CreatableTopicResult(
        name=name,
        topic_id=outcome.topic_id,
        error_message=None,
        num_partitions=len(outcome.partitions),
        replication_factor=outcome.replication_factor,
        configs=configs.of(outcome),
    )

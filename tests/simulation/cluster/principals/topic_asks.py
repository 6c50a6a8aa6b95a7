"""Requests about topics and their configs: metadata by name, by id and of all, creation, deletion (§62.2, §62.5)."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.security.acl import AclOperation, ResourceType
from tests.simulation.cluster.principals.asks import (
    CLUSTER_CODE,
    GROUP_CODE,
    NAMES,
    NO_ID,
    NOT_ASKED,
    PASSING_TOPICS,
    READABLE,
    TOPIC_CODE,
    Ask,
    Deed,
    Draw,
    first_wrong,
    wrong_code,
    wrong_if_shown,
)
from tests.simulation.cluster.principals.rights import Seen

CREATE, DELETE, ALTER = AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER
DESCRIBE, DESCRIBE_CONFIGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS
ALTER_CONFIGS = AclOperation.ALTER_CONFIGS
NULL_MEANS_ALL_SINCE, IDS_SINCE, BY_ID_SINCE, CONFIGS_SINCE, DELETED_BY_ID_SINCE = 1, 10, 12, 5, 6
CREATION_IS_ASKED_SINCE = 4
OF_TOPIC, OF_BROKERS, OF_GROUP = 2, 4, 32
MARKED = "file.delete.delay.ms"
"""A config that changes nothing that anybody looks at: each value is given once."""
# Of topics, which may be deleted: one is left, so that there is always something to write to.
DELETABLE = ("valley", *PASSING_TOPICS)


# Metadata.


def metadata_of_names(draw: Draw) -> Ask:
    """Where brokers create topics, those that may be there later."""
    creates = draw.creates and draw.rng.random() < 0.5
    return named(draw, draw.names(NAMES[:-1] if creates else READABLE), creates=creates)


def named(draw: Draw, names: list[str], *, creates: bool) -> Ask:
    """`creates`: the broker is asked to, and does."""
    version = draw.version(CREATION_IS_ASKED_SINCE if draw.creates and not creates else 0, 13)
    request = _metadata(draw, [MetadataRequestTopic(name=name) for name in names])
    request.allow_auto_topic_creation = creates
    return Ask(request, version, partial(_wrong_names, names, request, version))


def metadata_of_all(draw: Draw) -> Ask:
    version = draw.version(0, 13)
    request = _metadata(draw, None if version >= NULL_MEANS_ALL_SINCE else [])
    return Ask(request, version, partial(_wrong_list_of_all, request, version))


def metadata_of_ids(draw: Draw) -> Ask:
    version = draw.version(12, 13)
    ids = list({draw.id_of(name): None for name in draw.names(READABLE)})
    request = _metadata(draw, [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids])
    return Ask(request, version, partial(_wrong_ids, request, version))


def _metadata(draw: Draw, topics: list[MetadataRequestTopic] | None) -> MetadataRequest:
    asks = draw.rng.random() < 0.5
    return MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=asks,
        include_cluster_authorized_operations=asks,
    )


def _wrong_names(names: list[str], request: Any, version: int, seen: Seen, response: Any) -> str | None:
    def each() -> Iterator[str | None]:
        for topic in response.topics:
            what, is_allowed = f"metadata of {topic.name}", seen.topic(DESCRIBE, topic.name)
            if request.allow_auto_topic_creation and topic.name not in seen.topics:
                is_allowed = is_allowed and _may_create(topic.name, seen)
            yield wrong_code(what, topic.error_code, TOPIC_CODE, is_allowed=is_allowed)
            yield None if is_allowed else _shown_topic(what, topic)
        answered = [topic.name for topic in response.topics]
        yield None if sorted(answered) == sorted(names) else f"metadata of {names} was answered for {answered}"
        yield _wrong_operations(request, version, seen, response)

    return first_wrong(each())


def _shown_topic(what: str, topic: Any) -> str | None:
    shown = {"id": topic.topic_id, "partitions": topic.partitions, "internal": topic.is_internal}
    return wrong_if_shown(what, shown, {"id": NO_ID, "partitions": [], "internal": False})


def _wrong_list_of_all(request: Any, version: int, seen: Seen, response: Any) -> str | None:
    listed, allowed = (
        {topic.name for topic in response.topics},
        {name for name in seen.topics if seen.topic(DESCRIBE, name)},
    )
    if listed != allowed:
        return f"metadata of all topics has {listed}, allowed are {allowed}"
    return _wrong_operations(request, version, seen, response)


def _wrong_ids(request: Any, version: int, seen: Seen, response: Any) -> str | None:
    def each() -> Iterator[str | None]:
        for topic in response.topics:
            name = seen.name_of(topic.topic_id)
            what, is_allowed = f"metadata of {name} by its id", name is None or seen.topic(DESCRIBE, name)
            yield wrong_code(what, topic.error_code, TOPIC_CODE, is_allowed=is_allowed)
            if not is_allowed:
                shown = {"name": topic.name, "partitions": topic.partitions}
                yield wrong_if_shown(what, shown, {"name": None, "partitions": []})
        yield _wrong_operations(request, version, seen, response)

    return first_wrong(each())


def _wrong_operations(request: Any, version: int, seen: Seen, response: Any) -> str | None:
    if version < 8:
        return None
    for topic in response.topics:
        expected = (
            seen.bits(ResourceType.TOPIC, topic.name or "")
            if request.include_topic_authorized_operations
            else NOT_ASKED
        )
        if not topic.error_code and topic.topic_authorized_operations != expected:
            return f"operations on {topic.name} are {topic.topic_authorized_operations}, allowed are {expected}"
    if version <= 10 and request.include_cluster_authorized_operations:
        expected = seen.bits(ResourceType.CLUSTER, "kafka-cluster") if seen.cluster(DESCRIBE) else 0
        if response.cluster_authorized_operations != expected:
            return f"operations on the cluster are {response.cluster_authorized_operations}, allowed are {expected}"
    return None


def describe_topic_partitions(draw: Draw) -> Ask:
    names = [] if draw.rng.random() < 0.4 else draw.names(READABLE)
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in sorted(names)])

    def wrong(seen: Seen, response: Any) -> str | None:
        def each() -> Iterator[str | None]:
            for topic in response.topics:
                what, is_allowed = f"partitions of {topic.name}", seen.topic(DESCRIBE, topic.name)
                yield wrong_code(what, topic.error_code, TOPIC_CODE, is_allowed=is_allowed)
                yield None if is_allowed else _shown_topic(what, topic)
            answered = {topic.name for topic in response.topics}
            expected = set(names) or {name for name in seen.topics if seen.topic(DESCRIBE, name)}
            yield None if answered == expected else f"partitions of {expected} were answered for {answered}"

        return first_wrong(each())

    return Ask(request, 0, wrong)


# Creation and deletion.


def create_topics(draw: Draw) -> Ask:
    version = draw.version(2, 7)
    topics, deeds = [], []
    for name in draw.names((*DELETABLE, NAMES[0])):
        mark = str(1_000_000 + draw.number())
        configs = [CreatableTopicConfig(name=MARKED, value=mark)]
        topics.append(CreatableTopic(name=name, num_partitions=1, replication_factor=3, configs=configs))
        deeds.append(Deed(("config", mark), partial(_may_create, name)))
    request = CreateTopicsRequest(topics=topics, timeout_ms=1_000)
    return Ask(request, version, partial(_wrong_creations, version), deeds=deeds)


def _may_create(name: str, seen: Seen) -> bool:
    return seen.cluster(CREATE) or seen.topic(CREATE, name)


def _wrong_creations(version: int, seen: Seen, response: Any) -> str | None:
    def each() -> Iterator[str | None]:
        for topic in response.topics:
            what, is_allowed = f"creation of {topic.name}", _may_create(topic.name, seen)
            yield wrong_code(what, topic.error_code, TOPIC_CODE, is_allowed=is_allowed)
            if version >= CONFIGS_SINCE and not topic.error_code:
                shows = seen.topic(DESCRIBE_CONFIGS, topic.name)
                yield wrong_code(
                    f"configs of {topic.name}", topic.topic_config_error_code, TOPIC_CODE, is_allowed=shows
                )
                if not shows:
                    shown = {"configs": topic.configs or [], "partitions": topic.num_partitions}
                    yield wrong_if_shown(what, shown, {"configs": [], "partitions": -1})

    return first_wrong(each())


def delete_topics(draw: Draw) -> Ask:
    version, names = draw.version(1, 6), draw.names(DELETABLE, 2)
    states = [
        DeleteTopicState(name=None, topic_id=draw.id_of(name))
        if draw.rng.random() < 0.5
        else DeleteTopicState(name=name)
        for name in names
    ]
    ids = {state.topic_id for state in states if state.name is None}
    request = DeleteTopicsRequest(
        topics=states if len(ids) == len(states) else [DeleteTopicState(name=n) for n in names],
        topic_names=names,
        timeout_ms=1_000,
    )
    deeds = [Deed(("delete", name), partial(_may_delete, name)) for name in names]
    return Ask(request, version, _wrong_deletions, deeds=deeds)


def _may_delete(name: str, seen: Seen) -> bool:
    return seen.cluster(DELETE) or (seen.topic(DESCRIBE, name) and seen.topic(DELETE, name))


def _wrong_deletions(seen: Seen, response: Any) -> str | None:
    """By name, a topic that is hidden has no id; by id, it has no name."""
    if seen.cluster(DELETE):
        return first_wrong(
            wrong_code(f"deletion of {each.name}", each.error_code, TOPIC_CODE, is_allowed=True)
            for each in response.responses
        )

    def each() -> Iterator[str | None]:
        for result in response.responses:
            name = result.name if result.name is not None else seen.name_of(result.topic_id)
            if name is None:
                continue
            what, is_shown = f"deletion of {name}", seen.topic(DESCRIBE, name)
            is_allowed = is_shown and (seen.topic(DELETE, name) or name not in seen.topics)
            yield wrong_code(what, result.error_code, TOPIC_CODE, is_allowed=is_allowed)
            if not is_shown and result.name is not None and result.topic_id != NO_ID:
                yield f"{what} is denied and shows an id beside the name"

    return first_wrong(each())


def create_partitions(draw: Draw) -> Ask:
    """None is created."""
    topics = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in draw.names()]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=1_000, validate_only=True)

    def wrong(seen: Seen, response: Any) -> str | None:
        return first_wrong(
            wrong_code(f"growth of {each.name}", each.error_code, TOPIC_CODE, is_allowed=seen.topic(ALTER, each.name))
            for each in response.results
        )

    return Ask(request, draw.version(0, 3), wrong)


# Configs.


def describe_configs(draw: Draw) -> Ask:
    resources = [
        *(
            DescribeConfigsResource(resource_type=OF_TOPIC, resource_name=name, configuration_keys=[MARKED])
            for name in draw.names(READABLE)
        ),
        DescribeConfigsResource(resource_type=OF_BROKERS, resource_name="", configuration_keys=["log.segment.bytes"]),
        DescribeConfigsResource(resource_type=OF_GROUP, resource_name=draw.group(), configuration_keys=[]),
    ]
    request = DescribeConfigsRequest(resources=draw.rng.sample(resources, draw.rng.randint(1, 3)))

    def wrong(seen: Seen, response: Any) -> str | None:
        return first_wrong(_wrong_config(seen, each, DESCRIBE_CONFIGS, each.configs) for each in response.results)

    return Ask(request, draw.version(1, 4), wrong)


def alter_configs(draw: Draw) -> Ask:
    mark, name = str(1_000_000 + draw.number()), draw.rng.choice(NAMES)
    altered = AlterableConfig(name=MARKED, config_operation=0, value=mark)
    resource = AlterConfigsResource(resource_type=OF_TOPIC, resource_name=name, configs=[altered])
    request = IncrementalAlterConfigsRequest(resources=[resource])

    def wrong(seen: Seen, response: Any) -> str | None:
        return first_wrong(_wrong_config(seen, each, ALTER_CONFIGS, []) for each in response.responses)

    deed = Deed(("config", mark), lambda seen: seen.topic(ALTER_CONFIGS, name))
    return Ask(request, draw.version(0, 1), wrong, deeds=[deed])


def alter_broker_configs(draw: Draw) -> Ask:
    """None is altered."""
    altered = AlterableConfig(name="log.cleaner.backoff.ms", config_operation=0, value="300")
    resource = AlterConfigsResource(resource_type=OF_BROKERS, resource_name="", configs=[altered])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)

    def wrong(seen: Seen, response: Any) -> str | None:
        return first_wrong(_wrong_config(seen, each, ALTER_CONFIGS, []) for each in response.responses)

    return Ask(request, draw.version(0, 1), wrong)


def _wrong_config(seen: Seen, result: Any, operation: AclOperation, shown: Any) -> str | None:
    name = result.resource_name
    if result.resource_type == OF_TOPIC:
        refusal, is_allowed = TOPIC_CODE, seen.topic(operation, name)
    elif result.resource_type == OF_GROUP:
        refusal, is_allowed = GROUP_CODE, seen.group(operation, name)
    else:
        refusal, is_allowed = CLUSTER_CODE, seen.cluster(operation)
    what = f"{operation.name} of {name!r}"
    wrong = wrong_code(what, result.error_code, refusal, is_allowed=is_allowed)
    return wrong or (None if is_allowed else wrong_if_shown(what, {"configs": shown}, {"configs": []}))


ASKS: list[Callable[[Draw], Ask]] = [
    metadata_of_names,
    metadata_of_names,
    metadata_of_all,
    metadata_of_all,
    metadata_of_ids,
    describe_topic_partitions,
    create_topics,
    delete_topics,
    create_partitions,
    describe_configs,
    alter_configs,
    alter_broker_configs,
]

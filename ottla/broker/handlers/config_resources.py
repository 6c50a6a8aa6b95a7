"""What DescribeConfigs, AlterConfigs and IncrementalAlterConfigs can be about, and the common part of the last two.

Each resource gets new configs, or its own error. The messages are alike but for the operations; the classes of the
answer are handed in.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from ottla.broker.metadata.topic_commands import TopicService
from ottla.broker.server.request_context import DeferredResponse, Gather, RequestContext
from ottla.protocol.errors import ErrorCode, InvalidRequest, KafkaError

# The broker resource with this name stands for all brokers.
ALL_BROKERS = ""


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4


def check_resource_type(resource_type: int) -> ResourceType:
    """Raises InvalidRequest for kinds of resources that have no configs here."""
    try:
        return ResourceType(resource_type)
    except ValueError:
        raise InvalidRequest(f"resources of type {resource_type} have no configs on this broker") from None


def check_broker_name(name: str, node_id: int) -> None:
    if name not in (ALL_BROKERS, str(node_id)):
        raise InvalidRequest(f"this is broker {node_id}, not '{name}'")


NewConfigs = Callable[[Any], Mapping[str, str]]
"""What a resource of the request is to have from now on; raises KafkaError for invalid configs."""


class Answers(NamedTuple):
    response: type[Any]
    of_resource: type[Any]


def alter_resources(
    topics: TopicService,
    node_id: int,
    context: RequestContext,
    request: Any,
    new_configs: NewConfigs,
    answers: Answers,
) -> Any | None:
    """The response, with one answer per resource in the order of the request; None if the request is parked for it."""
    deferred = DeferredResponse(context)
    gather = Gather(len(request.resources), lambda results: deferred.complete(answers.response(responses=results)))
    _alter_each(_ConfigOwner(topics, node_id), request, new_configs, gather, answers.of_resource)
    return deferred.result_or_park()


def _alter_each(
    target: "_ConfigOwner", request: Any, new_configs: NewConfigs, gather: Gather, answer_class: type[Any]
) -> None:
    resources: Sequence[Any] = request.resources
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    for index, resource in enumerate(resources):
        done = _done(gather, index, resource, answer_class)
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequest("a resource is named twice")
            _alter(target, resource, new_configs, request.validate_only, done)
        except KafkaError as error:
            done(error)


def _done(gather: Gather, index: int, resource: Any, answer_class: type[Any]) -> Callable[[KafkaError | None], None]:
    def done(error: KafkaError | None) -> None:
        result = answer_class(
            error_code=int(ErrorCode.NONE if error is None else error.code),
            error_message=None if error is None else str(error),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        gather.put(index, result)

    return done


class _ConfigOwner(NamedTuple):
    topics: TopicService
    node_id: int


def _alter(
    target: _ConfigOwner,
    resource: Any,
    new_configs: NewConfigs,
    validate_only: bool,
    done: Callable[[KafkaError | None], None],
) -> None:
    name = resource.resource_name
    if check_resource_type(resource.resource_type) is ResourceType.TOPIC:
        target.topics.alter_topic_configs(name, lambda: new_configs(resource), validate_only=validate_only, done=done)
        return
    check_broker_name(name, target.node_id)
    target.topics.alter_broker_configs(
        lambda: new_configs(resource), of_all_brokers=name == ALL_BROKERS, validate_only=validate_only, done=done
    )

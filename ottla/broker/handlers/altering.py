"""The common part of AlterConfigs and IncrementalAlterConfigs: each resource gets new configs, or its own error."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.broker.answer import Gathering
from ottla.broker.context import RequestContext
from ottla.broker.handlers.config_resources import ALL_BROKERS, ResourceType, check_broker_name, check_resource_type
from ottla.protocol.errors import ErrorCode, InvalidRequest, KafkaError

NewConfigs = Callable[[Any], Mapping[str, str]]
"""What a resource of the request is to have from now on; raises KafkaError where that cannot be told."""


class AlterOutcome(NamedTuple):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


def alter_resources(
    context: RequestContext,
    resources: Sequence[Any],
    new_configs: NewConfigs,
    gathering: Gathering,
    *,
    validate_only: bool,
) -> None:
    """Put one AlterOutcome per resource, in the order of the request."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    for index, resource in enumerate(resources):
        done = _done(gathering, index, resource)
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequest("a resource is named twice")
            _alter(context, resource, new_configs, validate_only, done)
        except KafkaError as error:
            done(error)


def _done(gathering: Gathering, index: int, resource: Any) -> Callable[[KafkaError | None], None]:
    def done(error: KafkaError | None) -> None:
        code = ErrorCode.NONE if error is None else error.code
        message = None if error is None else str(error)
        gathering.put(index, AlterOutcome(int(code), message, resource.resource_type, resource.resource_name))

    return done


def _alter(
    context: RequestContext,
    resource: Any,
    new_configs: NewConfigs,
    validate_only: bool,
    done: Callable[[KafkaError | None], None],
) -> None:
    broker = context.broker
    name = resource.resource_name
    if check_resource_type(resource.resource_type) is ResourceType.TOPIC:
        broker.topics.alter_topic_configs(name, new_configs(resource), validate_only=validate_only, done=done)
        return
    check_broker_name(name, broker.node_id)
    broker.topics.alter_broker_configs(
        new_configs(resource), of_all_brokers=name == ALL_BROKERS, validate_only=validate_only, done=done
    )

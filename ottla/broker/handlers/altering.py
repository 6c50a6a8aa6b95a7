"""The common part of AlterConfigs and IncrementalAlterConfigs: each resource gets new configs, or its own error.

Their messages are alike but for the operations; the class of a resource's answer is handed in.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ottla.broker.handlers.config_resources import ALL_BROKERS, ResourceType, check_broker_name, check_resource_type
from ottla.broker.metadata.config_admin import ConfigAdminManager
from ottla.broker.runtime import Runtime
from ottla.protocol.errors import ErrorCode, InvalidRequest, KafkaError

T = TypeVar("T")

NewConfigs = Callable[[Any], Mapping[str, str]]
"""What a resource of the request is to have from now on; raises KafkaError where that cannot be said."""

# Committed together, if the store can; the next ones wait, so that other clients are served in between.
RESOURCES_AT_ONCE = 32


async def alter_resources(
    config_admin: ConfigAdminManager, runtime: Runtime, request: Any, new_configs: NewConfigs, result: Callable[..., T]
) -> list[T]:
    """One `result` per resource, in the order of the request."""
    resources: Sequence[Any] = request.resources
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    results: list[T] = []
    for start in range(0, len(resources), RESOURCES_AT_ONCE):
        some = resources[start : start + RESOURCES_AT_ONCE]
        alterations = [
            runtime.spawn(
                _alter(
                    config_admin,
                    runtime.node_id,
                    resource,
                    new_configs,
                    is_duplicate=times[resource.resource_type, resource.resource_name] > 1,
                    validate_only=request.validate_only,
                ),
                "new configs",
            )
            for resource in some
        ]
        for resource, alteration in zip(some, alterations, strict=True):
            results.append(_result(result, resource, await alteration))
    return results


async def _alter(
    config_admin: ConfigAdminManager,
    node_id: int,
    resource: Any,
    new_configs: NewConfigs,
    *,
    is_duplicate: bool,
    validate_only: bool,
) -> KafkaError | None:
    name = resource.resource_name
    try:
        if is_duplicate:
            raise InvalidRequest("a resource is named twice")
        if check_resource_type(resource.resource_type) is ResourceType.TOPIC:
            await config_admin.alter_topic(name, lambda: new_configs(resource), validate_only=validate_only)
        else:
            check_broker_name(name, node_id)
            await config_admin.alter_broker(
                lambda: new_configs(resource), of_all_brokers=name == ALL_BROKERS, validate_only=validate_only
            )
    except KafkaError as error:
        return error
    return None


def _result(result: Callable[..., T], resource: Any, error: KafkaError | None) -> T:
    return result(
        error_code=int(ErrorCode.NONE if error is None else error.code),
        error_message=None if error is None else str(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )

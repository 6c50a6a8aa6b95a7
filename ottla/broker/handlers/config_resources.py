"""What DescribeConfigs, AlterConfigs and IncrementalAlterConfigs can be about, and the common part of the last two.

Each resource gets new configs, or its own error. The messages are alike but for the operations; the classes of the
answer are handed in.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ottla.broker.config.alter import Alteration, ConfigResourceType, Operation, altered
from ottla.broker.metadata.config_admin import ConfigAdminManager
from ottla.broker.runtime import Runtime
from ottla.protocol.errors import ErrorCode, InvalidConfig, InvalidRequest, KafkaError

# The broker resource with this name stands for all brokers.
ALL_BROKERS = ""
MIN_ISR = "min.insync.replicas"


# What these could be configured with is not served: they have no configs, and none can be set.
WITHOUT_CONFIGS = (ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP)


def check_resource_type(resource_type: int) -> ConfigResourceType:
    """Raises InvalidRequest for kinds of resources that have no configs here."""
    try:
        return ConfigResourceType(resource_type)
    except ValueError:
        raise InvalidRequest(f"resources of type {resource_type} have no configs on this broker") from None


def check_broker_name(name: str, node_id: int, *, may_be_all: bool = True) -> None:
    """Configs may be those of all brokers; loggers are those of one."""
    if name != str(node_id) and not (may_be_all and name == ALL_BROKERS):
        raise InvalidRequest(f"this is broker {node_id}, not '{name}'")


T = TypeVar("T")

NewConfigs = Callable[[Any], Mapping[str, str]]
"""What a resource of the request is to have from now on; raises KafkaError where that cannot be said."""

AlterLoggers = Callable[[Any, bool], None]
"""Alters the levels of a resource, or with True only looks whether it could; raises KafkaError."""

# Committed together, if the store can; the next ones wait, so that other clients are served in between.
RESOURCES_AT_ONCE = 32


async def alter_resources(
    config_admin: ConfigAdminManager,
    runtime: Runtime,
    request: Any,
    new_configs: NewConfigs,
    result: Callable[..., T],
    *,
    alter_loggers: AlterLoggers | None = None,
) -> list[T]:
    """One `result` per resource, in the order of the request. `alter_loggers` alters those of a resource, where the
    request can do that."""
    resources: Sequence[Any] = request.resources
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    results: list[T] = []
    for start in range(0, len(resources), RESOURCES_AT_ONCE):
        some = resources[start : start + RESOURCES_AT_ONCE]
        alterations = [
            runtime.spawn(
                _alter(
                    config_admin,
                    runtime,
                    resource,
                    new_configs,
                    alter_loggers,
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
    runtime: Runtime,
    resource: Any,
    new_configs: NewConfigs,
    alter_loggers: AlterLoggers | None,
    *,
    is_duplicate: bool,
    validate_only: bool,
) -> KafkaError | None:
    name = resource.resource_name
    try:
        if is_duplicate:
            raise InvalidRequest("a resource is named twice")
        kind = check_resource_type(resource.resource_type)
        if kind is ConfigResourceType.BROKER_LOGGER:
            check_broker_name(name, runtime.node_id, may_be_all=False)
            if alter_loggers is None:
                raise InvalidRequest("the levels of loggers are altered by IncrementalAlterConfigs alone")
            alter_loggers(resource, validate_only)
        elif kind in WITHOUT_CONFIGS:
            _check_that_nothing_is_set(kind, resource)
        elif kind is ConfigResourceType.TOPIC:
            await config_admin.alter_topic(name, lambda: new_configs(resource), validate_only=validate_only)
        else:
            check_broker_name(name, runtime.node_id)
            of_all_brokers = name == ALL_BROKERS
            await config_admin.alter_broker(
                lambda: _broker_configs(runtime, new_configs(resource), of_all_brokers=of_all_brokers),
                of_all_brokers=of_all_brokers,
                validate_only=validate_only,
            )
    except KafkaError as error:
        return error
    return None


def _broker_configs(runtime: Runtime, configs: Mapping[str, str], *, of_all_brokers: bool) -> Mapping[str, str]:
    """Eligible leader replicas are those of the cluster's `min.insync.replicas`, which is not removed (KIP-966)."""
    if of_all_brokers and MIN_ISR not in configs and MIN_ISR in runtime.config.dynamic(of_all_brokers=True):
        raise InvalidConfig(f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")
    return configs


def _check_that_nothing_is_set(kind: ConfigResourceType, resource: Any) -> None:
    """As in Kafka, what is not there can be deleted, and each kind of resource has an error of its own for a value."""
    alterations = [
        Alteration(each.name, getattr(each, "config_operation", Operation.SET), each.value) for each in resource.configs
    ]
    names = altered({}, alterations, {}, lambda _: None)
    if not resource.resource_name:
        raise InvalidRequest("the resource has no name")
    for name in names:
        sentence = f"there is no config {name} of {kind.name.lower().replace('_', ' ')}"
        raise InvalidRequest(sentence) if kind is ConfigResourceType.CLIENT_METRICS else InvalidConfig(sentence)


def _result(result: Callable[..., T], resource: Any, error: KafkaError | None) -> T:
    return result(
        error_code=int(ErrorCode.NONE if error is None else error.code),
        error_message=None if error is None else str(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )

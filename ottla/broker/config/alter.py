"""What AlterConfigs and IncrementalAlterConfigs make of the configs a topic or a broker has."""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.broker.config.options import Kind, Option
from ottla.protocol.errors import InvalidConfig, InvalidRequest


class ConfigResourceType(IntEnum):
    """What has configs, by the numbers of `resource_type` in requests."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Operation(IntEnum):
    """The numbers of `config_operation` in an IncrementalAlterConfigs request."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    name: str
    operation: int
    value: str | None


def replaced(configs: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    """AlterConfigs: the given configs in place of all there were."""
    check_alterations([Alteration(name, Operation.SET, value) for name, value in configs])
    return {name: _given(name, value) for name, value in configs}


def altered(
    current: Mapping[str, str],
    alterations: Sequence[Alteration],
    options: Mapping[str, Option[object]],
    effective: Callable[[Option[object]], str | None],
) -> dict[str, str]:
    """IncrementalAlterConfigs: `current` with the alterations made. APPEND and SUBTRACT start from the value in
    effect."""
    check_alterations(alterations)
    result = dict(current)
    for alteration in alterations:
        match alteration.operation:
            case Operation.SET:
                result[alteration.name] = _given(alteration.name, alteration.value)
            case Operation.DELETE:
                result.pop(alteration.name, None)
            case Operation.APPEND | Operation.SUBTRACT:
                result[alteration.name] = _with_items(alteration, options, effective)
            case _:
                raise InvalidRequest(f"{alteration.name}: there is no operation {alteration.operation}")
    return result


def _with_items(
    alteration: Alteration, options: Mapping[str, Option[object]], effective: Callable[[Option[object]], str | None]
) -> str:
    option = options.get(alteration.name)
    if option is None or option.kind is not Kind.LIST:
        raise InvalidConfig(f"{alteration.name} is not a list, so nothing can be appended to it or taken from it")
    items = [item for item in (effective(option) or "").split(",") if item]
    given = [item.strip() for item in _given(alteration.name, alteration.value).split(",")]
    if alteration.operation == Operation.APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)


def _given(name: str, value: str | None) -> str:
    if value is None:
        raise InvalidRequest(f"{name} has no value")
    return value


def check_alterations(alterations: Sequence[Alteration]) -> None:
    """What Kafka looks at first, whatever the resource is. Raises InvalidRequest."""
    if len({each.name for each in alterations}) != len(alterations):
        raise InvalidRequest("a config is named twice in one resource")
    for each in alterations:
        if each.operation != Operation.DELETE:
            _given(each.name, each.value)

"""What DescribeConfigs, AlterConfigs and IncrementalAlterConfigs can be about."""

from enum import IntEnum

from ottla.protocol.errors import InvalidRequest

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

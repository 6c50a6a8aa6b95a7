"""Brokers as a client is told of them: live ones, at the address of the listener that it came by itself.

A broker without that listener is out of the client's reach, and so is what it leads (§4.2.2).
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.server.request_context import RequestContext
from ottla.cluster.image import NO_LEADER, BrokerInfo, MetadataImage
from ottla.protocol.errors import ErrorCode


class Node(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


def nodes_for(context: RequestContext, brokers: Mapping[int, BrokerInfo]) -> dict[int, Node]:
    """Those of the brokers that the client can be sent to, by node id: all that have its listener."""
    listener = context.connection.listener_name
    return {
        node_id: Node(node_id, *broker.endpoint(listener), broker.rack)
        for node_id, broker in brokers.items()
        if broker.has_listener(listener)
    }


def told_leader(leader: int, nodes: dict[int, Node], image: MetadataImage) -> tuple[int, ErrorCode]:
    """The leader as the client may know it, or NO_LEADER with the reason."""
    if leader in nodes:
        return leader, ErrorCode.NONE
    if leader in image.live_brokers:
        return NO_LEADER, ErrorCode.LISTENER_NOT_FOUND
    return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE

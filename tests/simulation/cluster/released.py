"""What brokers hold for clients when these have gone (I-19): nothing; and for one another: what belongs to a connection
that is there on both sides."""

from typing import TYPE_CHECKING, Any

from tests.simulation.loop import PROCESS

if TYPE_CHECKING:
    from tests.simulation.cluster.node import Node
    from tests.simulation.cluster.world import ClusterWorld


def held_too_much(world: "ClusterWorld") -> list[str]:
    return [f"{node.host} has {what}" for node in world.nodes.values() for what in _of_one(world, node)]


def _of_one(world: "ClusterWorld", node: "Node") -> list[str]:
    broker: Any = node.broker
    server, sessions = broker.server, broker.fetch_sessions
    living = sum(near.peer.context.get(PROCESS) is node.broker_process for near in world.network.connections)
    parked = list(broker.replicas.delayed_fetch._operations)
    of_clients = sum(not each.is_of_follower for each in parked)
    left_behind = sum(each._context.connection not in server.connections for each in parked)
    strangers = [
        session.id for session in sessions._of_connection.values() if session.connection not in server.connections
    ]
    consumers_bytes = sum(each.size_bytes for each in sessions._sessions.values() if not each.is_follower)
    moved = [
        f"{name}-{index}"
        for (name, index), log in broker.parts.log_directory.logs.items()
        if is_moved_away(broker.metadata.image.topic(name), index, log, node.node_id)
    ]
    counts = [
        (bool(moved), f"logs of {moved}, which were moved away"),
        (len(server.connections) != living, f"{len(server.connections)} connections, {living} are alive"),
        (server.memory.held_bytes > 0, f"{server.memory.held_bytes} bytes held"),
        (server.receive_buffers._lent > 0, f"{server.receive_buffers._lent} receive buffers lent"),
        (of_clients > 0, f"{of_clients} parked fetches of clients"),
        (left_behind > 0, f"{left_behind} parked fetches of connections that are gone"),
        (len(parked) > living, f"{len(parked)} parked fetches"),
        (bool(strangers), f"fetch sessions {strangers} of connections that are gone"),
        (
            consumers_bytes != sessions.consumers_bytes,
            f"{sessions.consumers_bytes} bytes counted for sessions of consumers, which have {consumers_bytes}",
        ),
    ]
    return [what for is_wrong, what in counts if is_wrong]


def is_moved_away(topic: Any, index: int, log: Any, node_id: int) -> bool:
    """A log of a partition that is there, with replicas on other brokers alone."""
    is_known = topic is not None and topic.topic_id == log.topic_id and index < len(topic.partitions)
    return is_known and node_id not in topic.partitions[index].replicas

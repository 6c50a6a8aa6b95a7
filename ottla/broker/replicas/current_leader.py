"""Who leads a partition, for a client that asked the wrong broker (KIP-951).

With the leader's epoch and address in the answer that refuses it, a client can go there at once, and need not ask for
metadata first. `KafkaApis.getCurrentLeader` is the rule: the leader is named whether or not the client can reach it,
the address only where there is one.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from ottla.cluster.image import NO_LEADER, MetadataImage
from ottla.replication.partition import Partition

UNKNOWN_EPOCH = -1


class Endpoint(NamedTuple):
    """The fields of the messages' NodeEndpoint."""

    node_id: int
    host: str
    port: int
    rack: str | None


class CurrentLeader(NamedTuple):
    """`leader_id` is NO_LEADER where nobody is known to lead."""

    leader_id: int
    leader_epoch: int
    endpoint: Endpoint | None

    def new_endpoints(self, told: Iterable[Any]) -> list[dict[str, Any]]:
        """The fields of what is to be added to a response's endpoints, each of which it names once."""
        endpoint = self.endpoint
        if endpoint is None or any(each.node_id == endpoint.node_id for each in told):
            return []
        return [endpoint._asdict()]


class LeaderSource(Protocol):
    @property
    def node_id(self) -> int: ...

    @property
    def image(self) -> MetadataImage: ...

    def find(self, topic: str, index: int) -> Partition | None: ...


def current_leader(replicas: LeaderSource, listener: str, topic: str, index: int) -> CurrentLeader:
    """The leader as the metadata has it, and its address at the listener that the client came by."""
    image = replicas.image
    state = image.partition(topic, index)
    if state is None:
        return CurrentLeader(NO_LEADER, UNKNOWN_EPOCH, None)
    if state.leader == replicas.node_id and not _leads(replicas.find(topic, index)):
        return CurrentLeader(NO_LEADER, state.leader_epoch, None)
    return CurrentLeader(state.leader, state.leader_epoch, _endpoint(image, listener, state.leader))


def _leads(partition: Partition | None) -> bool:
    """A replica that has resigned knows that before the metadata does."""
    return partition is not None and partition.is_leader


def _endpoint(image: MetadataImage, listener: str, node_id: int) -> Endpoint | None:
    leader = image.brokers.get(node_id)
    if leader is None or not leader.is_live or not leader.has_listener(listener):
        return None
    return Endpoint(node_id, *leader.endpoint(listener), leader.rack)

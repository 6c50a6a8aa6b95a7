"""Brokers and leaders as a client is sent to them: at the address of the listener that it came by itself.

A broker without that listener is out of the client's reach, and so is what it leads (§4.2.2).

A client that asked the wrong broker is sent the leader's epoch and address in the answer that refuses it (KIP-951): it
can go there at once, and need not ask for metadata first. `KafkaApis.getCurrentLeader` is the rule: the leader is named
whether or not the client can reach it, the address only where there is one.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from ottla.cluster.image import NO_LEADER, BrokerInfo, MetadataImage
from ottla.protocol.errors import ErrorCode, KafkaError, NotLeaderOrFollower
from ottla.replication.partition import Partition


class Node(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


def nodes_for(listener: str, brokers: Mapping[int, BrokerInfo]) -> dict[int, Node]:
    """The brokers that a client of this listener can be sent to, by node id: all that have it."""
    return {
        node_id: Node(node_id, *broker.endpoint(listener), broker.rack)
        for node_id, broker in brokers.items()
        if broker.has_listener(listener)
    }


def node_for(listener: str, broker: BrokerInfo | None) -> Node | None:
    """The broker as a client of this listener can be sent to it; None where it is not live, or has no such listener."""
    if broker is None or not broker.is_live or not broker.has_listener(listener):
        return None
    return Node(broker.node_id, *broker.endpoint(listener), broker.rack)


def reachable_leader(leader: int, nodes: dict[int, Node], image: MetadataImage) -> tuple[int, ErrorCode]:
    """The leader if it is one of the `nodes`, or NO_LEADER with the reason."""
    if leader in nodes:
        return leader, ErrorCode.NONE
    if leader in image.live_brokers:
        return NO_LEADER, ErrorCode.LISTENER_NOT_FOUND
    return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE


UNKNOWN_EPOCH = -1
# Of what a log misses, where its successor may have more: batches of a producer, offsets of a reader; and what a
# coordinator of the same broker says of a transaction, for another one may have begun it.
_IN_DOUBT = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)


class CurrentLeader(NamedTuple):
    """`leader_id` is NO_LEADER where no leader is known."""

    leader_id: int
    leader_epoch: int
    node: Node | None

    def new_endpoints(self, known: Iterable[Any]) -> list[dict[str, Any]]:
        """The fields of what is to be added to a response's endpoints, each of which it names once."""
        node = self.node
        if node is None or any(each.node_id == node.node_id for each in known):
            return []
        return [node._asdict()]


class LeaderSource(Protocol):
    @property
    def node_id(self) -> int: ...

    @property
    def image(self) -> MetadataImage: ...

    def find(self, topic: str, index: int) -> Partition | None: ...


class SessionHolder(Protocol):
    def session_is_over(self) -> bool: ...


def in_doubt(replicas: SessionHolder, error: KafkaError) -> KafkaError:
    """What a client gets for it: a broker whose session is over may have been deposed, and another leader may know of
    what this one misses. A producer would take the error for a loss, or for the end of its transaction, and a consumer
    would begin again at the first record or the last."""
    if error.code in _IN_DOUBT and replicas.session_is_over():
        return NotLeaderOrFollower(f"{error}, and another broker may lead the partition by now")
    return error


def current_leader(replicas: LeaderSource, listener: str, topic: str, index: int) -> CurrentLeader:
    """The leader as the metadata has it, and its address at the listener that the client came by."""
    image = replicas.image
    state = image.partition(topic, index)
    if state is None:
        return CurrentLeader(NO_LEADER, UNKNOWN_EPOCH, None)
    if state.leader == replicas.node_id and not _leads(replicas.find(topic, index)):
        return CurrentLeader(NO_LEADER, state.leader_epoch, None)
    return CurrentLeader(state.leader, state.leader_epoch, node_for(listener, image.brokers.get(state.leader)))


def _leads(partition: Partition | None) -> bool:
    """A replica that has resigned knows that before the metadata does."""
    return partition is not None and partition.is_leader

"""What the answers to a produce request have in common, whether its appends fail at once or while they are awaited."""

from typing import TYPE_CHECKING

from ottla.broker.replicas.current_leader import current_leader
from ottla.protocol.messages.produce import LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, ProduceResponse

if TYPE_CHECKING:
    from ottla.broker.server.request_context import RequestContext

LEADER_SINCE = 10


def tell_leader(
    context: "RequestContext", response: ProduceResponse, topic: str, answer: PartitionProduceResponse
) -> None:
    """To be called for NOT_LEADER_OR_FOLLOWER; does nothing for a client whose version has no room for it."""
    if context.api_version < LEADER_SINCE:
        return
    leader = current_leader(context, topic, answer.index)
    answer.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
    told = response.node_endpoints
    told += [NodeEndpoint(**fields) for fields in leader.new_endpoints(told)]

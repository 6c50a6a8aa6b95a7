"""DescribeQuorum: who leads the cluster's metadata, and who follows it, as KRaft's tools ask (KIP-595).

There is no quorum of brokers here: the metadata is in a store. The controller writes it, so it is the leader, with the
epoch that counts controllers. Every registered broker may become the controller and reads all of the store, so all are
voters. Their offsets are revisions of the store: the store notifies each live broker of every change, so all of these
have what this broker has seen; of one that is fenced nothing is known.
"""

from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.image import CLUSTER_METADATA, BrokerInfo, BrokerState, MetadataImage
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumNode,
    QuorumNodeListener,
    QuorumPartitionData,
    QuorumReplicaState,
    QuorumTopicData,
)

UNKNOWN = -1


def handle(
    metadata: ClusterMetadata,
    runtime: Runtime,
    context: RequestContext,  # noqa: ARG001
    request: DescribeQuorumRequest,
) -> DescribeQuorumResponse:
    asked = [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in request.topics]
    if asked != [(CLUSTER_METADATA, [0])]:
        return _refusal(request)
    image = metadata.image
    described = _partition(image, runtime.broker_clock.wall_ms())
    return DescribeQuorumResponse(
        topics=[QuorumTopicData(topic_name=CLUSTER_METADATA, partitions=[described])],
        nodes=[QuorumNode(node_id=each.node_id, listeners=_listeners(each)) for each in image.brokers.values()],
    )


def _refusal(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """As in Kafka of all partitions, also where one of them is the right one."""
    return DescribeQuorumResponse(
        topics=[
            QuorumTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    QuorumPartitionData(
                        partition_index=each.partition_index, error_code=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(image: MetadataImage, wall_ms: int) -> QuorumPartitionData:
    return QuorumPartitionData(
        leader_id=image.controller_id,
        leader_epoch=image.controller_epoch,
        high_watermark=image.revision,
        current_voters=[_voter(each, image.revision, wall_ms) for each in image.brokers.values()],
    )


def _voter(broker: BrokerInfo, revision: int, wall_ms: int) -> QuorumReplicaState:
    follows = broker.state is not BrokerState.FENCED
    return QuorumReplicaState(
        replica_id=broker.node_id,
        log_end_offset=revision if follows else UNKNOWN,
        last_fetch_timestamp=wall_ms if follows else UNKNOWN,
        last_caught_up_timestamp=wall_ms if follows else UNKNOWN,
    )


def _listeners(broker: BrokerInfo) -> list[QuorumNodeListener]:
    return [QuorumNodeListener(name=each.name, host=each.host, port=each.port) for each in broker.listeners]

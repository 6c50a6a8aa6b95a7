"""ListPartitionReassignments: the partitions that are being moved; those that are not are left out (KIP-455)."""

from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.alterations import reassignments
from ottla.cluster.image import PartitionInfo
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(
    metadata: ClusterMetadata,
    context: RequestContext,  # noqa: ARG001
    request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse:
    asked = None
    if request.topics is not None:
        asked = {(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
    topics: dict[str, OngoingTopicReassignment] = {}
    for name, index, state in reassignments(metadata.image):
        if asked is None or (name, index) in asked:
            topic = topics.setdefault(name, OngoingTopicReassignment(name=name))
            topic.partitions.append(_ongoing(index, state))
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))


def _ongoing(index: int, state: PartitionInfo) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(state.replicas),
        adding_replicas=list(state.adding),
        removing_replicas=list(state.removing),
    )

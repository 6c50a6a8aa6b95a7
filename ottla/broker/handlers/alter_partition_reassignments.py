"""AlterPartitionReassignments: partitions begin to move to other replicas, or moves are given up (KIP-455).

It is answered when the moves have begun. They end by themselves, when all new replicas are in sync.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial

from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.metadata.partition_commands import Outcomes, PartitionKey, change_partitions
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.alterations import reassign
from ottla.cluster.controller import PartitionChange, RulesOf
from ottla.cluster.image import MetadataImage
from ottla.protocol.errors import InvalidRequest, KafkaError
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(
    metadata: ClusterMetadata,
    runtime: Runtime,
    context: RequestContext,  # noqa: ARG001
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse:
    targets = {
        (topic.name, partition.partition_index): partition.replicas
        for topic in request.topics
        for partition in topic.partitions
    }
    partitions = [(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions]
    keeps_factor = not request.allow_replication_factor_change
    decide = partial(_reassign, Counter(partitions), targets, metadata.rules_of, keeps_factor=keeps_factor)
    outcomes = await change_partitions(runtime, metadata, targets, decide, timeout_ms=request.timeout_ms)
    response = _response([topic.name for topic in request.topics], partitions, outcomes)
    if request.topics:
        # As in Kafka, which looks no further at a request about nothing.
        response.allow_replication_factor_change = request.allow_replication_factor_change
    return response


def _reassign(
    times: Mapping[PartitionKey, int],
    targets: Mapping[PartitionKey, list[int] | None],
    rules_of: RulesOf,
    image: MetadataImage,
    key: PartitionKey,
    *,
    keeps_factor: bool,
) -> PartitionChange | None:
    if times[key] > 1:
        raise InvalidRequest(f"partition {key[0]}-{key[1]} is named twice")
    return reassign(image, *key, targets[key], rules_of, keeps_factor=keeps_factor)


def _response(
    topics: Iterable[str], partitions: Iterable[PartitionKey], outcomes: Outcomes
) -> AlterPartitionReassignmentsResponse:
    responses = {name: ReassignableTopicResponse(name=name) for name in topics}
    for name, index in partitions:
        responses[name].partitions.append(_result(index, outcomes[name, index]))
    return AlterPartitionReassignmentsResponse(responses=list(responses.values()))


def _result(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(partition_index=index)
    return ReassignablePartitionResponse(partition_index=index, error_code=int(error.code), error_message=str(error))

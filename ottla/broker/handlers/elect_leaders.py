"""ElectLeaders: preferred leaders, or any leader for partitions that have none. §19.3.1

v1 has the type of the election (KIP-460), v2 is flexible.
"""

from collections.abc import Iterable, Sequence

from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.metadata.partition_commands import Outcomes, PartitionKey, change_partitions
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.alterations import elect_preferred, elect_unclean
from ottla.protocol.errors import ErrorCode, InvalidRequest, KafkaError
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

ELECTIONS = {0: elect_preferred, 1: elect_unclean}


async def handle(
    metadata: ClusterMetadata,
    runtime: Runtime,
    context: RequestContext,  # noqa: ARG001
    request: ElectLeadersRequest,
) -> ElectLeadersResponse:
    named = request.topic_partitions
    if named is not None and not named:
        # As Kafka, which looks at nothing else then.
        return _response([], [], {})
    if named is None:
        topics = list(metadata.image.topics)
        partitions = [(topic.name, index) for topic, index, _ in metadata.image.partitions()]
    else:
        topics = [topic.topic for topic in named]
        partitions = [(topic.topic, index) for topic in named for index in topic.partitions]
    elect = ELECTIONS.get(request.election_type)
    if elect is None:
        error = InvalidRequest(f"there is no election of type {request.election_type}")
        named_topics, refused = (topics, partitions) if named is not None else ([], [])
        return _response(named_topics, refused, dict.fromkeys(partitions, error), int(error.code))
    rules_of = metadata.rules_of
    outcomes = await change_partitions(
        runtime,
        metadata,
        partitions,
        lambda image, key: elect(image, *key, rules_of),
        timeout_ms=request.timeout_ms,
    )
    # The answer for all partitions has all topics, and of their partitions those that were in need of an election, as
    # Kafka does it.
    shown = [key for key in partitions if named is not None or not _is_not_needed(outcomes[key])]
    return _response(topics, shown, outcomes)


def _is_not_needed(error: KafkaError | None) -> bool:
    return error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED


def _response(
    topics: Iterable[str],
    partitions: Sequence[PartitionKey],
    outcomes: Outcomes,
    error_code: int = int(ErrorCode.NONE),
) -> ElectLeadersResponse:
    results = {name: ReplicaElectionResult(topic=name) for name in topics}
    for name, index in partitions:
        topic = results.setdefault(name, ReplicaElectionResult(topic=name))
        topic.partition_result.append(_result(index, outcomes[name, index]))
    return ElectLeadersResponse(error_code=error_code, replica_election_results=list(results.values()))


def _result(index: int, error: KafkaError | None) -> PartitionResult:
    if error is None:
        return PartitionResult(partition_id=index)
    return PartitionResult(partition_id=index, error_code=int(error.code), error_message=str(error))

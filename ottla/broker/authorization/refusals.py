"""Errors of refusals, and what several guards do alike."""

from collections.abc import Iterable
from typing import Any

from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import ErrorCode, KafkaError, error_for
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.replication.fetch_session import FetchTarget
from ottla.security.acl import ResourceType

UNKNOWN = -1

ERROR_OF: dict[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
SENTENCE_OF: dict[ErrorCode, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
"""Kafka's, by which clients without names for codes show them."""


def refusal_error(code: ErrorCode) -> KafkaError:
    return error_for(code, SENTENCE_OF[code])


def refusal(context: RequestContext, code: ErrorCode) -> Any:
    """The response to a request that is refused as a whole. Raises the error where the response has no place for it:
    the connection closes then."""
    error = refusal_error(code)
    response = context.route.error_response(error)
    if response is None:
        raise error
    return response


def count_refusals(context: RequestContext, code: ErrorCode, count: int) -> None:
    context.route.errors[int(code)] += count


def refuse_targets(response: FetchResponse, denied: Iterable[FetchTarget]) -> None:
    """Adds partitions that a consumer may not read to the response, unless that is an error as a whole."""
    if response.error_code:
        return
    topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    for target in denied:
        key = target.topic, target.topic_id
        if key not in topics:
            topics[key] = FetchableTopicResponse(topic=target.topic, topic_id=target.topic_id)
        topics[key].partitions.append(refused_partition(target.partition))
    response.responses.extend(topics.values())


def refused_partition(index: int) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        high_watermark=UNKNOWN,
        records=b"",
        aborted_transactions=[],
    )

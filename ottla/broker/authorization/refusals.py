"""Errors of refusals, and what several guards do alike."""

from collections.abc import Callable, Iterable
from typing import Any

from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import ErrorCode, KafkaError, error_for
from ottla.security.acl import ResourceType

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


def refuse_partitions(
    topics: Iterable[Any],
    partitions: Callable[[Any], Iterable[Any]],
    topic_result: Callable[[Any, list[Any]], Any],
    partition_result: Callable[[Any], Any],
) -> list[Any]:
    """One result per topic of the request, with one per partition of it, in its order."""
    return [topic_result(topic, [partition_result(each) for each in partitions(topic)]) for topic in topics]

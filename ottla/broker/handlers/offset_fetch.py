"""OffsetFetch: where a group has got to (§9.4). One group per request before version 8, several from then on.

What version 9 says of the member (KIP-848) means nothing to a classic group and is not looked at.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.events import FetchOffsets
from ottla.coordinator.results import FetchedOffset, FetchResult
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_TOP_LEVEL_ERROR_FROM = 2
_SEVERAL_GROUPS_FROM = 8

Topics = tuple[tuple[str, tuple[int, ...]], ...]


def handle(
    groups: GroupCoordinator, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | None:
    version = context.api_version
    events = [
        FetchOffsets(groups.new_token(), each.group_id, _topics(each.topics), request.require_stable)
        for each in ([request] if version < _SEVERAL_GROUPS_FROM else request.groups)
    ]
    return groups.ask_each(context, events, lambda results: _response(events, results, version))


def _topics(topics: Sequence[Any] | None) -> Topics | None:
    return None if topics is None else tuple((topic.name, tuple(topic.partition_indexes)) for topic in topics)


def _response(events: list[FetchOffsets], results: list[FetchResult], version: int) -> OffsetFetchResponse:
    if version >= _SEVERAL_GROUPS_FROM:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    group_id=each.group_id,
                    topics=_shaped(
                        None if result.error else each.topics,
                        result.partitions,
                        OffsetFetchResponseTopics,
                        OffsetFetchResponsePartitions,
                    ),
                    error_code=int(result.error),
                )
                for each, result in zip(events, results, strict=True)
            ]
        )
    (result,) = results
    partitions: Iterable[FetchedOffset] = result.partitions
    if result.error and version < _TOP_LEVEL_ERROR_FROM:
        partitions = _failed(events[0].topics or (), result.error)
    named = None if result.error else events[0].topics
    topics = _shaped(named, partitions, OffsetFetchResponseTopic, OffsetFetchResponsePartition)
    return OffsetFetchResponse(topics=topics, error_code=int(result.error))


def _failed(topics: Topics, error: ErrorCode) -> list[FetchedOffset]:
    """Version 1 has no other place for an error than each partition (§9.4.4)."""
    return [FetchedOffset(name, index, error=error) for name, indexes in topics for index in indexes]


def _shaped(
    named: Topics | None, partitions: Iterable[FetchedOffset], topic_class: Any, partition_class: Any
) -> list[Any]:
    """One entry per topic, also where no partition of it is asked for."""
    topics: dict[str, list[Any]] = {name: [] for name, _ in named or ()}
    for each in partitions:
        topics.setdefault(each.topic, []).append(
            partition_class(
                partition_index=each.partition,
                committed_offset=each.offset,
                committed_leader_epoch=each.leader_epoch,
                metadata=each.metadata,
                error_code=int(each.error),
            )
        )
    return [topic_class(name=name, partitions=entries) for name, entries in topics.items()]

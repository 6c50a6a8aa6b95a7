"""OffsetFetch: where a group has got to (§9.4). One group per request before version 8, several from then on.

What version 9 says of the member (KIP-848) means nothing to a classic group and is not looked at.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.runtime import ITEMS_PER_SLICE, next_step, now_or_later
from ottla.broker.server.request_context import REPETITIONS_MAX, RequestContext, check_repetitions
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

_SEVERAL_GROUPS_FROM = 8

Topics = tuple[tuple[str, tuple[int, ...]], ...]


def handle(
    groups: GroupCoordinator, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | None:
    version = context.api_version
    asked: Sequence[Any] = [request] if version < _SEVERAL_GROUPS_FROM else request.groups
    if len(asked) > 1:
        check_repetitions("group", (each.group_id for each in asked), len(asked))
    for each in asked:
        topics = each.topics or ()
        # Most members ask for some partitions of one topic.
        if len(topics) > 1 or (topics and len(topics[0].partition_indexes) > REPETITIONS_MAX):
            named = [(topic.name, index) for topic in topics for index in topic.partition_indexes]
            check_repetitions("partition", named, len(named))
    events = [
        FetchOffsets(groups.new_token(), each.group_id, _topics(each.topics), request.require_stable) for each in asked
    ]
    return groups.fetch_offsets(context, events, partial(_respond, events, version))


def _respond(events: list[FetchOffsets], version: int, results: list[FetchResult]) -> Any:
    size = len(results) + sum(len(result.partitions) for result in results)
    return now_or_later(_response(events, results, version), size)


def _topics(topics: Sequence[Any] | None) -> Topics | None:
    return None if topics is None else tuple((topic.name, tuple(topic.partition_indexes)) for topic in topics)


async def _response(events: list[FetchOffsets], results: list[FetchResult], version: int) -> OffsetFetchResponse:
    if version >= _SEVERAL_GROUPS_FROM:
        return OffsetFetchResponse(groups=await _groups(events, results))
    (result,) = results
    partitions: Sequence[FetchedOffset] = result.partitions
    if result.error:
        partitions = _failed(events[0].topics or (), result.error)
    named = None if result.error else events[0].topics
    topics = await _shaped(named, partitions, OffsetFetchResponseTopic, OffsetFetchResponsePartition)
    return OffsetFetchResponse(topics=topics, error_code=int(result.error))


async def _groups(events: list[FetchOffsets], results: list[FetchResult]) -> list[OffsetFetchResponseGroup]:
    groups: list[OffsetFetchResponseGroup] = []
    items_in_slice = 0
    for each, result in zip(events, results, strict=True):
        if items_in_slice >= ITEMS_PER_SLICE:
            await next_step()
            items_in_slice = 0
        items_in_slice += 1 + len(result.partitions)
        named = None if result.error else each.topics
        topics = await _shaped(named, result.partitions, OffsetFetchResponseTopics, OffsetFetchResponsePartitions)
        groups.append(OffsetFetchResponseGroup(group_id=each.group_id, topics=topics, error_code=int(result.error)))
    return groups


def _failed(topics: Topics, error: ErrorCode) -> list[FetchedOffset]:
    """Version 1 has no other place for an error than each partition (§9.4.4). From 2 on Kafka leaves them out, which
    aiokafka 0.14 takes for a group that has committed nothing: it does not read the error of the response."""
    return [FetchedOffset(name, index, error=error) for name, indexes in topics for index in indexes]


async def _shaped(
    named: Topics | None, partitions: Sequence[FetchedOffset], topic_class: Any, partition_class: Any
) -> list[Any]:
    """One entry per topic, also where no partition of it is asked for."""
    topics: dict[str, list[Any]] = {name: [] for name, _ in named or ()}
    for first in range(0, len(partitions), ITEMS_PER_SLICE):
        if first:
            await next_step()
        for each in partitions[first : first + ITEMS_PER_SLICE]:
            entry = partition_class(
                partition_index=each.partition,
                committed_offset=each.offset,
                committed_leader_epoch=each.leader_epoch,
                metadata=each.metadata,
                error_code=int(each.error),
            )
            topics.setdefault(each.topic, []).append(entry)
    return [topic_class(name=name, partitions=entries) for name, entries in topics.items()]

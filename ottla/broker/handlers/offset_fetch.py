"""OffsetFetch: where a group has got to (§9.4). One group per request before version 8, several from then on.

What version 9 says of the member (KIP-848) means nothing to a classic group and is not looked at.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.runtime import ITEMS_PER_SLICE, next_step
from ottla.broker.server.request_context import REPETITIONS_MAX, RequestContext, check_repetitions
from ottla.coordinator.events import FetchOffsets
from ottla.coordinator.results import FetchedOffset, FetchResult
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
    """The response, or the coroutine that builds a long one."""
    size = len(results) + sum(len(result.partitions) for result in results)
    if size > ITEMS_PER_SLICE:
        return _response_in_slices(events, version, results)
    if version < _SEVERAL_GROUPS_FROM:
        return _of_one_group(results[0], _topic_entries(events[0], results[0], version))
    pairs = zip(events, results, strict=True)
    return OffsetFetchResponse(
        groups=[_group(event, result, _topic_entries(event, result, version)) for event, result in pairs]
    )


async def _response_in_slices(
    events: list[FetchOffsets], version: int, results: list[FetchResult]
) -> OffsetFetchResponse:
    if version < _SEVERAL_GROUPS_FROM:
        return _of_one_group(results[0], await _topic_entries_in_slices(events[0], results[0], version))
    groups: list[OffsetFetchResponseGroup] = []
    items_in_slice = 0
    for event, result in zip(events, results, strict=True):
        if items_in_slice >= ITEMS_PER_SLICE:
            await next_step()
            items_in_slice = 0
        items_in_slice += 1 + len(result.partitions)
        groups.append(_group(event, result, await _topic_entries_in_slices(event, result, version)))
    return OffsetFetchResponse(groups=groups)


def _of_one_group(result: FetchResult, topics: list[Any]) -> OffsetFetchResponse:
    return OffsetFetchResponse(topics=topics, error_code=int(result.error))


def _group(event: FetchOffsets, result: FetchResult, topics: list[Any]) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=event.group_id, topics=topics, error_code=int(result.error))


def _topics(topics: Sequence[Any] | None) -> Topics | None:
    return None if topics is None else tuple((topic.name, tuple(topic.partition_indexes)) for topic in topics)


def _topic_entries(event: FetchOffsets, result: FetchResult, version: int) -> list[Any]:
    """One per topic, also where no partition of it is asked for."""
    topics = _named_topics(event, result)
    _add_partitions(topics, _partitions(event, result, version), version)
    return _entries(topics, version)


async def _topic_entries_in_slices(event: FetchOffsets, result: FetchResult, version: int) -> list[Any]:
    topics, partitions = _named_topics(event, result), _partitions(event, result, version)
    for first in range(0, len(partitions), ITEMS_PER_SLICE):
        if first:
            await next_step()
        _add_partitions(topics, partitions[first : first + ITEMS_PER_SLICE], version)
    return _entries(topics, version)


def _named_topics(event: FetchOffsets, result: FetchResult) -> dict[str, list[Any]]:
    return {} if result.error or event.topics is None else {name: [] for name, _ in event.topics}


def _partitions(event: FetchOffsets, result: FetchResult, version: int) -> Sequence[FetchedOffset]:
    """Version 1 has no other place for an error than each partition (§9.4.4). From 2 on Kafka leaves them out, which
    aiokafka 0.14 takes for a group that has committed nothing: it does not read the error of the response."""
    if not result.error or version >= _SEVERAL_GROUPS_FROM:
        return result.partitions
    topics = event.topics or ()
    return [FetchedOffset(name, index, error=result.error) for name, indexes in topics for index in indexes]


def _add_partitions(topics: dict[str, list[Any]], partitions: Sequence[FetchedOffset], version: int) -> None:
    partition_class: Any = OffsetFetchResponsePartition
    if version >= _SEVERAL_GROUPS_FROM:
        partition_class = OffsetFetchResponsePartitions
    for each in partitions:
        entry = partition_class(
            partition_index=each.partition,
            committed_offset=each.offset,
            committed_leader_epoch=each.leader_epoch,
            metadata=each.metadata,
            error_code=int(each.error),
        )
        topics.setdefault(each.topic, []).append(entry)


def _entries(topics: dict[str, list[Any]], version: int) -> list[Any]:
    topic_class: Any = OffsetFetchResponseTopic if version < _SEVERAL_GROUPS_FROM else OffsetFetchResponseTopics
    return [topic_class(name=name, partitions=partitions) for name, partitions in topics.items()]

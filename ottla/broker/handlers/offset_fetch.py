"""OffsetFetch: where a group has got to (§9.4). One group per request before version 8, several from then on.

What version 9 says of the member (KIP-848) means nothing to a classic group and is not looked at.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ottla.broker.coordinators.group_coordinator import GroupService
from ottla.broker.server.deferred_response import Answer, Gathering
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


class _Asked(NamedTuple):
    group_id: str
    topics: Topics | None


def handle(groups: GroupService, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse | None:
    version = context.api_version
    asked = _asked(request, version)
    answer = Answer(context)
    tokens: list[int] = []

    def done(results: list[FetchResult]) -> None:
        answer.give(_response(asked, results, version))

    gathering = Gathering(len(asked), done)
    for index, each in enumerate(asked):
        tokens.append(groups.ask(_event_of(each, request.require_stable), _putter(gathering, index)))
    return answer.now_or_parked(lambda: groups.forget(*tokens))


def _asked(request: OffsetFetchRequest, version: int) -> list[_Asked]:
    if version < _SEVERAL_GROUPS_FROM:
        return [_Asked(request.group_id, _topics(request.topics))]
    return [_Asked(group.group_id, _topics(group.topics)) for group in request.groups]


def _topics(topics: Sequence[Any] | None) -> Topics | None:
    return None if topics is None else tuple((topic.name, tuple(topic.partition_indexes)) for topic in topics)


def _event_of(asked: _Asked, require_stable: bool) -> Callable[[int], FetchOffsets]:
    return lambda token: FetchOffsets(token, asked.group_id, asked.topics, require_stable)


def _putter(gathering: Gathering, index: int) -> Callable[[FetchResult], None]:
    return lambda result: gathering.put(index, result)


def _response(asked: list[_Asked], results: list[FetchResult], version: int) -> OffsetFetchResponse:
    if version >= _SEVERAL_GROUPS_FROM:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    group_id=each.group_id,
                    topics=_shaped(result.partitions, OffsetFetchResponseTopics, OffsetFetchResponsePartitions),
                    error_code=int(result.error),
                )
                for each, result in zip(asked, results, strict=True)
            ]
        )
    (result,) = results
    partitions: Iterable[FetchedOffset] = result.partitions
    if result.error and version < _TOP_LEVEL_ERROR_FROM:
        partitions = _failed(asked[0].topics or (), result.error)
    topics = _shaped(partitions, OffsetFetchResponseTopic, OffsetFetchResponsePartition)
    return OffsetFetchResponse(topics=topics, error_code=int(result.error))


def _failed(topics: Topics, error: ErrorCode) -> list[FetchedOffset]:
    """Version 1 has no other place for an error than each partition (§9.4.4)."""
    return [FetchedOffset(name, index, error=error) for name, indexes in topics for index in indexes]


def _shaped(partitions: Iterable[FetchedOffset], topic_class: Any, partition_class: Any) -> list[Any]:
    """One entry per topic, in the order of their first partitions."""
    topics: dict[str, list[Any]] = {}
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

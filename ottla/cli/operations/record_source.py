"""Which records are read: of which topics and partitions, from where, and up to where."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.cli.client import EARLIEST, LATEST, Client, TopicPartition
from ottla.cli.failures import ClientError
from ottla.cli.operations.topics import list_topics, reachable_partitions

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Start:
    """Of several, the first that is given; without any, only new records are read."""

    offsets: Offsets | None = None
    """Of each partition; no other partition is read."""
    from_beginning: bool = False
    since_ms: int | None = None
    """At the first record with this timestamp or a later one."""
    offset: int | None = None
    """Of every partition. Negative: so many before its end."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The earliest of those that are given; without any, reading goes on."""

    at_end: bool = False
    """As it is when the reading begins."""
    before_offset: int | None = None
    until_ms: int | None = None
    """Before the first record with this timestamp or a later one, or at the end."""


@dataclass(frozen=True, slots=True)
class RecordSource:
    topics: tuple[str, ...] = ()
    include: re.Pattern[str] | None = None
    """Also the topics whose whole name matches, internal ones excepted."""
    group: str | None = None
    partitions: tuple[int, ...] = ()
    """Empty: all of them."""
    start: Start = Start()
    stop: Stop = Stop()
    committed_only: bool = False
    """Neither records of open transactions, nor anything behind them, nor records of aborted ones."""

    @property
    def name(self) -> str:
        return ", ".join([*self.topics, *([self.include.pattern] if self.include is not None else [])])


@dataclass(frozen=True, slots=True)
class Bounds:
    """`starts` is empty for a group, whose coordinator knows them; `stops` where nothing stops the reading."""

    topics: tuple[str, ...]
    starts: Offsets
    stops: Offsets


async def find_bounds(client: Client, source: RecordSource) -> Bounds:
    """Raises ClientError for a topic or partition that does not exist."""
    topics = await _topics(client, source)
    partitions: list[TopicPartition] = []
    for topic in topics:
        existing = await reachable_partitions(client, topic)
        for index in source.partitions:
            if index not in existing:
                raise ClientError(f"topic {topic} has no partition {index}")
        partitions += [(topic, index) for index in source.partitions or existing]
    if source.group is not None:
        return Bounds(topics, {}, {})
    search = OffsetSearch(client, committed_only=source.committed_only)
    ends = await search.offsets(partitions, LATEST)
    return Bounds(topics, await _starts(search, source.start, ends), await _stops(search, source.stop, ends))


@dataclass(frozen=True, slots=True)
class OffsetSearch:
    client: Client
    committed_only: bool

    async def offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> Offsets:
        return await self.client.list_offsets(partitions, timestamp, committed_only=self.committed_only)


async def _topics(client: Client, source: RecordSource) -> tuple[str, ...]:
    if source.include is None:
        return source.topics
    pattern = source.include
    matching = [
        each.name for each in await list_topics(client) if not each.is_internal and pattern.fullmatch(each.name)
    ]
    if not matching and not source.topics:
        raise ClientError(f"no topic matches {pattern.pattern}")
    return tuple(dict.fromkeys((*source.topics, *matching)))


async def _starts(search: OffsetSearch, start: Start, ends: Offsets) -> Offsets:
    if start.offsets is not None:
        return start.offsets
    if start.since_ms is not None:
        found = await search.offsets(ends, start.since_ms)
        return {key: ends[key] if offset < 0 else offset for key, offset in found.items()}
    if not start.from_beginning and start.offset is None:
        return ends
    first = await search.offsets(ends, EARLIEST)
    if start.offset is None:
        return first
    wanted = {key: start.offset if start.offset >= 0 else end + start.offset for key, end in ends.items()}
    return {key: min(max(wanted[key], first[key]), end) for key, end in ends.items()}


async def _stops(search: OffsetSearch, stop: Stop, ends: Offsets) -> Offsets:
    candidates: list[Offsets] = []
    if stop.at_end:
        candidates.append(ends)
    if stop.before_offset is not None:
        candidates.append(dict.fromkeys(ends, stop.before_offset))
    if stop.until_ms is not None:
        found = await search.offsets(ends, stop.until_ms)
        candidates.append({key: ends[key] if offset < 0 else offset for key, offset in found.items()})
    return {key: min(each[key] for each in candidates) for key in ends} if candidates else {}

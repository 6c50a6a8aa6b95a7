"""What is sampled at intervals: how far groups are behind, and how often they have committed since the last sample."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from ottla.broker.events.broker_facts import CommitsSummedUp, LagSampled
from ottla.broker.events.schema import EVENTS_TOPIC
from ottla.coordinator.facts import OffsetsCommitted

CommittedOffsets: TypeAlias = Mapping[tuple[str, int], int]
EndOf: TypeAlias = Callable[[str, int], int | None]
"""The high watermark of a partition, None where this broker has no replica of it."""


class Commits:
    """Commits of each member, summed up. There is one counter per member that commits, and never more than `most`:
    commits of further ones are counted as `lost`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: dict[tuple[str, str], list[int]] = {}
        self.lost = 0

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, fact: OffsetsCommitted) -> None:
        counts = self._counts.get((fact.group_id, fact.member_id))
        if counts is not None:
            counts[0] += 1
            counts[1] += fact.partitions
        elif len(self._counts) < self._most:
            self._counts[fact.group_id, fact.member_id] = [1, fact.partitions]
        else:
            self.lost += 1

    def take(self) -> list[CommitsSummedUp]:
        """One fact for each member that has committed since the last call."""
        taken, self._counts = self._counts, {}
        return [
            CommitsSummedUp(group_id=group_id, member_id=member_id, commits=commits, partitions=partitions)
            for (group_id, member_id), (commits, partitions) in taken.items()
        ]


def lag_samples(groups: Iterable[tuple[str, CommittedOffsets]], end_of: EndOf) -> Iterator[LagSampled]:
    """One fact per group and topic."""
    for group_id, offsets in groups:
        by_topic: dict[str, list[tuple[int, int]]] = {}
        for (topic, partition), offset in offsets.items():
            if topic != EVENTS_TOPIC:
                by_topic.setdefault(topic, []).append((partition, offset))
        for topic, rows in by_topic.items():
            partitions, committed = zip(*sorted(rows), strict=True)
            ends = tuple(end_of(topic, partition) for partition in partitions)
            yield LagSampled(group_id=group_id, topic=topic, partition=partitions, committed=committed, end=ends)

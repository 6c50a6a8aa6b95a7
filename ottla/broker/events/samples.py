"""What is sampled at intervals: how far groups are behind, how often they have committed since the last sample, and
transactions that hang."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from ottla.broker.events.broker_facts import CommitsSummedUp, HangingTransactionFound, LagSampled
from ottla.broker.events.schema import EVENTS_TOPIC
from ottla.coordinator.durable_state import LoggedOffset, TopicPartition
from ottla.coordinator.facts import OffsetsCommitted
from ottla.replication.partition import Partition

CommittedOffsets: TypeAlias = Mapping[TopicPartition, LoggedOffset]
GroupOffsets: TypeAlias = tuple[str, bool, CommittedOffsets]
"""A group, whether it has members, and what it has committed."""
_Lag: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[int | None, ...]]
EndOf: TypeAlias = Callable[[str, int, LoggedOffset], int | None]
"""Where a group that has committed this can read a partition up to, None where it is not known."""


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


class LagSamples:
    """A group that has read everything, or has no members, is sampled only when a number has changed, so an idle
    broker publishes nothing. One whose members do not read what is there is sampled at every interval."""

    def __init__(self) -> None:
        # The numbers of the last sample, by group and topic.
        self._last: dict[tuple[str, str], _Lag] = {}

    def sample(self, groups: Iterable[GroupOffsets], end_of: EndOf) -> list[LagSampled]:
        """One fact per group and topic."""
        before, self._last = self._last, {}
        facts: list[LagSampled] = []
        for group_id, has_members, offsets in groups:
            for topic, rows in _by_topic(offsets).items():
                rows.sort()
                partitions = tuple(partition for partition, _ in rows)
                committed = tuple(logged.committed.offset for _, logged in rows)
                ends = tuple(end_of(topic, partition, logged) for partition, logged in rows)
                lag = self._last[group_id, topic] = (partitions, committed, ends)
                is_behind = any(end is not None and offset < end for offset, end in zip(committed, ends, strict=True))
                if (has_members and is_behind) or before.get((group_id, topic)) != lag:
                    facts.append(
                        LagSampled(group_id=group_id, topic=topic, partition=partitions, committed=committed, end=ends)
                    )
        return facts


def _by_topic(offsets: CommittedOffsets) -> dict[str, list[tuple[int, LoggedOffset]]]:
    by_topic: dict[str, list[tuple[int, LoggedOffset]]] = {}
    for (topic, partition), logged in offsets.items():
        if topic != EVENTS_TOPIC:
            by_topic.setdefault(topic, []).append((partition, logged))
    return by_topic


class HangingTransactions:
    """Transactions that no coordinator is going to end, as the leader of their partition sees them.

    A coordinator ends each transaction after its timeout, which is `transaction.max.timeout.ms` at most. One whose
    producer has not written for longer than that, and five minutes more as Kafka allows, was forgotten, or was never
    known. Of each partition only the oldest open transaction is looked at: it is what readers of committed
    records wait for. It is reported once."""

    def __init__(self, transaction_max_timeout_ms: int) -> None:
        self._transaction_max_timeout_ms = transaction_max_timeout_ms
        # (topic, partition, producer id, first offset)
        self._reported: set[tuple[str, int, int, int]] = set()

    def sample(self, partitions: Iterable[Partition], wall_ms: int) -> list[HangingTransactionFound]:
        """Of those that this broker leads."""
        before, self._reported = self._reported, set()
        found: list[HangingTransactionFound] = []
        for fact in self._hanging(partitions, wall_ms):
            identity = (fact.topic, fact.partition, fact.producer_id, fact.first_offset)
            self._reported.add(identity)
            if identity not in before:
                found.append(fact)
        return found

    def _hanging(self, partitions: Iterable[Partition], wall_ms: int) -> Iterator[HangingTransactionFound]:
        for partition in partitions:
            oldest = partition.log.oldest_transaction if partition.is_leader else None
            if oldest is not None and oldest.is_late(wall_ms, self._transaction_max_timeout_ms):
                yield HangingTransactionFound(
                    topic=partition.topic,
                    partition=partition.index,
                    producer_id=oldest.producer_id,
                    producer_epoch=oldest.epoch,
                    first_offset=oldest.first_offset,
                    silent_ms=wall_ms - oldest.seen_ms,
                )

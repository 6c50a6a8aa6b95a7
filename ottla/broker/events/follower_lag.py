"""How far followers are behind, as their leader knows it.

A follower that has everything is not sampled, so an idle cluster publishes nothing however many partitions it has.
That it has caught up is: a partition that was behind at a sample is in the next one too, whatever its lag is by then.
"""

from collections.abc import Iterable, Iterator

from ottla.broker.events.broker_facts import FollowerLagSampled
from ottla.broker.events.schema import EVENTS_TOPIC
from ottla.replication.partition import Partition
from ottla.replication.replica_progress import UNKNOWN_OFFSET

_Row = tuple[int, int | None, bool]
"""Partition, lag, whether it is in sync."""


class FollowerLag:
    def __init__(self) -> None:
        # (topic, partition, follower) of what was behind at the last sample.
        self._behind: set[tuple[str, int, int]] = set()

    def sample(self, partitions: Iterable[Partition]) -> list[FollowerLagSampled]:
        """One fact per topic and follower of those that this broker leads."""
        before, self._behind = self._behind, set()
        rows: dict[tuple[str, int], list[_Row]] = {}
        for topic, follower, row in _measured(partitions):
            index, lag, in_sync = row
            is_behind = lag != 0 or not in_sync
            if is_behind:
                self._behind.add((topic, index, follower))
            if is_behind or (topic, index, follower) in before:
                rows.setdefault((topic, follower), []).append(row)
        return [_fact(topic, follower, sorted(found)) for (topic, follower), found in sorted(rows.items())]


def _measured(partitions: Iterable[Partition]) -> Iterator[tuple[str, int, _Row]]:
    for partition in partitions:
        leadership = partition.leadership
        if leadership is None or not leadership.followers or partition.topic == EVENTS_TOPIC:
            continue
        end_offset = partition.log.log_end_offset
        for follower, progress in leadership.followers.items():
            known = progress.log_end_offset
            lag = None if known == UNKNOWN_OFFSET else max(end_offset - known, 0)
            yield partition.topic, follower, (partition.index, lag, follower in partition.isr)


def _fact(topic: str, follower: int, rows: list[_Row]) -> FollowerLagSampled:
    partition, lag, in_sync = zip(*rows, strict=True)
    return FollowerLagSampled(topic=topic, follower=follower, partition=partition, lag=lag, in_sync=in_sync)

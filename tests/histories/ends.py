"""The end of a partition, as one client sees it, never falls, and in the end all that was promised is there.

Between clients nothing is promised: a leader that was paused and does not know that it has been replaced answers one
that does not know its successor either.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.histories.events import EndSeen, Event, FinalLog
from tests.histories.violations import Kind, Partition, Violation


def check_ends(events: Iterable[Event], final_logs: Mapping[Partition, FinalLog]) -> Iterator[Violation]:
    seen: dict[tuple[str, Partition], list[EndSeen]] = defaultdict(list)
    for event in events:
        if isinstance(event, EndSeen):
            seen[event.client, (event.topic, event.partition)].append(event)
    for (client, partition), ends in seen.items():
        yield from _falls(client, partition, ends)
        yield from _not_reached(client, partition, ends, final_logs.get(partition))


def _falls(client: str, partition: Partition, ends: Sequence[EndSeen]) -> Iterator[Violation]:
    """An answer is held to those that had come before its question left; of questions under way together, to none."""
    under_way: list[tuple[int, int]] = []
    known = 0
    for seen in sorted(ends, key=lambda seen: seen.sent_us):
        while under_way and under_way[0][0] < seen.sent_us:
            known = max(known, heapq.heappop(under_way)[1])
        if seen.offset < known:
            how = f"{client} saw {seen.offset} after {known}"
            yield Violation(Kind.END_FELL, partition, how)
        heapq.heappush(under_way, (seen.at_us, seen.offset))


def _not_reached(
    client: str, partition: Partition, ends: Sequence[EndSeen], final: FinalLog | None
) -> Iterator[Violation]:
    highest = max(seen.offset for seen in ends)
    end = 0
    if final is not None:
        end = final.records[-1][0] + 1 if final.records else final.log_start_offset
    if end < highest:
        how = f"{client} saw {highest}, and the final log ends at {end}"
        yield Violation(Kind.END_FELL, partition, how)

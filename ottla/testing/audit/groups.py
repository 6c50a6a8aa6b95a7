"""What groups did: members that were removed because nothing was heard of them (P7), and assignments that give a
partition to two members or to none (P9).

What is not assigned is judged in the last generation alone, and not of cooperative assignors, which assign in two.
"""

from collections import defaultdict
from collections.abc import Iterator

from ottla.testing.audit.findings import Finding, Kind
from ottla.testing.audit.history import Assigned, History

COOPERATIVE = "cooperative"


def check_groups(history: History) -> Iterator[Finding]:
    for removed in history.removed:
        yield Finding(Kind.P7, f"{removed.member_id}: {removed.cause}", removed.group, removed.client[0])
    last: dict[str, Assigned] = {}
    for assigned in history.assigned:
        last[assigned.group] = assigned
        yield from _owned_twice(assigned)
    for assigned in last.values():
        yield from _owned_by_none(history, assigned)


def _owned_twice(assigned: Assigned) -> Iterator[Finding]:
    owners: dict[tuple[str, int], list[str]] = defaultdict(list)
    for member_id, topics in assigned.members.items():
        for topic, partitions in topics.items():
            for index in partitions:
                owners[topic, index].append(member_id)
    for (topic, index), member_ids in owners.items():
        if len(member_ids) > 1:
            what = f"{' and '.join(member_ids)} have it in generation {assigned.generation} ({assigned.protocol})"
            yield Finding(Kind.P9, what, f"{assigned.group} {topic}-{index}")


def _owned_by_none(history: History, assigned: Assigned) -> Iterator[Finding]:
    if COOPERATIVE in assigned.protocol:
        return
    owned: dict[str, set[int]] = defaultdict(set)
    for topics in assigned.members.values():
        for topic, partitions in topics.items():
            owned[topic].update(partitions)
    for topic, indexes in owned.items():
        left = [index for index in range(history.partition_counts.get(topic, 0)) if index not in indexes]
        if left:
            what = f"no member has it in generation {assigned.generation} ({assigned.protocol})"
            yield Finding(Kind.P9, what, f"{assigned.group} {', '.join(f'{topic}-{index}' for index in left[:3])}")

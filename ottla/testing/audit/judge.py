"""The verdict on a history: all findings, those of the broker first.

Here is also what is judged of groups: members that were removed because nothing was heard of them (P7), and assignments
that give a partition to two members or to none (P9). What is not assigned is judged in the last generation alone, and
not of cooperative assignors, which assign in two.
"""

from collections import defaultdict
from collections.abc import Iterator

from ottla.testing.audit.commits import check_commits
from ottla.testing.audit.findings import AuditFinding, FindingKind
from ottla.testing.audit.history import Assigned, AuditHistory
from ottla.testing.audit.logs import check_logs
from ottla.testing.audit.reads import check_reads
from ottla.testing.audit.writes import check_writes

COOPERATIVE = "cooperative"


def judge(history: AuditHistory) -> list[AuditFinding]:
    """None for a history that a correct broker and careful clients can have made."""
    found = [
        *check_writes(history),
        *check_logs(history),
        *check_reads(history),
        *check_commits(history),
        *_groups(history),
    ]
    kinds = list(FindingKind)
    return sorted(found, key=lambda finding: kinds.index(finding.kind))


def _groups(history: AuditHistory) -> Iterator[AuditFinding]:
    for removed in history.removed:
        yield AuditFinding(FindingKind.P7, f"{removed.member_id}: {removed.cause}", removed.group, removed.client[0])
    last: dict[str, Assigned] = {}
    for assigned in history.assigned:
        last[assigned.group] = assigned
        yield from _owned_twice(assigned)
    for assigned in last.values():
        yield from _owned_by_none(history, assigned)


def _owned_twice(assigned: Assigned) -> Iterator[AuditFinding]:
    owners: dict[tuple[str, int], list[str]] = defaultdict(list)
    for member_id, topics in assigned.members.items():
        for topic, partitions in topics.items():
            for index in partitions:
                owners[topic, index].append(member_id)
    for (topic, index), member_ids in owners.items():
        if len(member_ids) > 1:
            what = f"{' and '.join(member_ids)} have it in generation {assigned.generation} ({assigned.protocol})"
            yield AuditFinding(FindingKind.P9, what, f"{assigned.group} {topic}-{index}")


def _owned_by_none(history: AuditHistory, assigned: Assigned) -> Iterator[AuditFinding]:
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
            yield AuditFinding(
                FindingKind.P9, what, f"{assigned.group} {', '.join(f'{topic}-{index}' for index in left[:3])}"
            )

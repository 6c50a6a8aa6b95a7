"""The verdict on a history: everything in it that Kafka's guarantees rule out.

Records are judged by `records` (acknowledged, stored, read), the ends of partitions that clients saw by `ends`,
committed offsets by `commits`. In doubt means innocent: a record or commit without an outcome may be there or not.
"""

from collections.abc import Iterable, Mapping

from tests.histories.commits import check_commits
from tests.histories.ends import check_ends
from tests.histories.events import Event, FinalLog
from tests.histories.records import check_records
from tests.histories.violations import Kind, Partition, Violation

__all__ = ["Kind", "Violation", "check"]


def check(events: Iterable[Event], final_logs: Mapping[Partition, FinalLog]) -> list[Violation]:
    """All violations, by kind and partition; none for a history that a correct cluster can have made.

    A partition that is not in `final_logs` counts as empty."""
    history = list(events)
    found = [
        *check_records(history, final_logs),
        *check_ends(history, final_logs),
        *check_commits(history),
    ]
    kinds = list(Kind)
    return sorted(found, key=lambda violation: (kinds.index(violation.kind), violation.partition))

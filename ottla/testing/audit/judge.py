"""The verdict on a history: all findings, those of the broker first."""

from ottla.testing.audit.commits import check_commits
from ottla.testing.audit.findings import Finding, Kind
from ottla.testing.audit.groups import check_groups
from ottla.testing.audit.history import History
from ottla.testing.audit.logs import check_logs
from ottla.testing.audit.reads import check_reads
from ottla.testing.audit.writes import check_writes


def judge(history: History) -> list[Finding]:
    """None for a history that a correct broker and careful clients can have made."""
    found = [
        *check_writes(history),
        *check_logs(history),
        *check_reads(history),
        *check_commits(history),
        *check_groups(history),
    ]
    kinds = list(Kind)
    return sorted(found, key=lambda finding: kinds.index(finding.kind))

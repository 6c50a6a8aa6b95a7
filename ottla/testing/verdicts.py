"""What is wrong at the end of what a broker was there for: rules that never acted, and what the audit found.

The fixtures of pytest judge so for each test (`ottla.testing.fixture_runs`). Here is what they share with brokers of
other scopes: those of `ottla.testing.broker`, of a class of unittest, of a module.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.testing.audit.auditor import summary
from ottla.testing.audit.findings import AuditFinding
from ottla.testing.report import ReportMark, Section, failure_sections
from ottla.testing.testbed import Testbed
from ottla.testing.worlds import describe_leak


class OttlaWarning(UserWarning):
    """A test has left something in its broker that the next one may meet."""


def warn_of(sentences: Iterable[str]) -> None:
    for each in sentences:
        warnings.warn(OttlaWarning(each), stacklevel=3)


class EndedRules(NamedTuple):
    """In sentences. `failures`: functions of rules that failed. `unused`: other rules that never acted, and steps of
    scripts that did not run."""

    failures: list[str]
    unused: list[str]


def end_rules(bed: Testbed) -> EndedRules:
    """Rules and scripts end, whatever is kept."""
    faults, scripts = bed.hosted.fault_host.faults_if_used, bed.scripts_if_used
    failures, unused = list[str](), list[str]()
    if scripts is not None:
        unused += bed.call(scripts.unused)
        bed.run(scripts.clear())
    if faults is not None:
        failures = faults.failures()
        unused += [each.text for each in faults.unused() if each.is_error and each.text not in failures]
        if bed.wire.coverage is not None:
            bed.wire.coverage.note_injected(faults.all_since_clear())
        faults.clear()
    return EndedRules(failures, unused)


def findings_of(bed: Testbed) -> list[AuditFinding]:
    """Since the last reset. With no broker there is no log to judge by."""
    return bed.call(bed.auditor.findings) if bed.hosted.parts() else []


def audited(found: Iterable[AuditFinding], mode: str) -> list[str]:
    """The lines about findings that `mode`, of `ottla_audit`, makes errors; none where none is."""
    errors = [each for each in found if each.is_error(mode)]
    return [f"ottla: audit: {len(errors)} findings", *summary(errors)] if errors else []


def end_scope(bed: Testbed, mode: str) -> list[str]:
    """What is wrong at the end of a broker, or of one of its tests; empty where nothing is. Rules end. `mode`: as of
    `audited`."""
    found, ended = findings_of(bed), end_rules(bed)
    return [*ended.failures, *ended.unused, *audited(found, mode)]


def warn_of_open_connections(bed: Testbed) -> None:
    """Those that were opened in the test that ends, of a broker that goes on."""
    warn_of(map(describe_leak, bed.run(bed.left_open(bed.wire.test))))


def shown_after_failure(bed: Testbed, mark: ReportMark) -> str:
    """The sections of a failing test as text."""
    sections: Sequence[Section] = bed.call(lambda: failure_sections(bed, mark))
    return "\n".join(f"--- {title} ---\n{text}" for title, text in sections)

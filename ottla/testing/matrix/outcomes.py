"""How tests ended under faults: judged by how they ended and by what the audit found, and shown as a table."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import pytest

from ottla.testing.audit.findings import AuditFinding, FindingKind
from ottla.testing.waits import DeadlineExceeded

LOST: Final = frozenset({FindingKind.B1, FindingKind.B6, FindingKind.P2, FindingKind.P5, FindingKind.P8})
DUPLICATED: Final = frozenset({FindingKind.B2, FindingKind.P1, FindingKind.P4})
ASSERTIONS: Final = (AssertionError, pytest.fail.Exception)


class MatrixOutcome(StrEnum):
    """Each with what it means."""

    SURVIVED = "survived"
    """The test passed, and the audit found what it finds without the fault."""
    LOST = "lost"
    """By the audit: records were refused for good, skipped, or not consumed."""
    DUPLICATED = "duplicated"
    """By the audit: records were written or delivered twice."""
    HUNG = "hung"
    """A wait or the whole run met its deadline."""
    FAILED = "failed"
    """An assertion of the test does not hold, and the audit does not say why."""
    CRASHED = "crashed"
    """Another exception ended it."""
    NOT_MET = "not met"
    """The test passed, and the fault had nothing to act on."""


class RunHung(BaseException):
    """A run under a fault has met its deadline. Not an Exception: programs under test catch those, and go on."""


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One test under one fault."""

    test: str
    fault: str
    outcome: MatrixOutcome
    passed: bool
    """Whether the test itself passed; it may, and the audit have found something."""
    why: str
    """The first line of the exception, and of what the audit found; empty for one that survived."""
    seconds: float


def judge(
    error: BaseException | None, hits: int, findings: Iterable[AuditFinding], usual: Counter[FindingKind]
) -> MatrixOutcome:
    """`usual`: what the audit found without the fault."""
    kinds = Counter(each.kind for each in findings) - usual
    if isinstance(error, RunHung | DeadlineExceeded):
        return MatrixOutcome.HUNG
    if kinds.keys() & LOST:
        return MatrixOutcome.LOST
    if kinds.keys() & DUPLICATED:
        return MatrixOutcome.DUPLICATED
    if error is None:
        return MatrixOutcome.SURVIVED if hits else MatrixOutcome.NOT_MET
    return MatrixOutcome.FAILED if isinstance(error, ASSERTIONS) else MatrixOutcome.CRASHED


def reason(error: BaseException | None, findings: Iterable[AuditFinding], usual: Counter[FindingKind]) -> str:
    """In one line."""
    kinds = Counter(each.kind for each in findings) - usual
    words = [each.lines()[0] for each in findings if each.kind in kinds and each.kind in LOST | DUPLICATED]
    if error is not None:
        first = str(error).strip().partition("\n")[0]
        words.insert(0, f"{type(error).__name__}: {first}" if first else type(error).__name__)
    return "; ".join(words)


class MatrixReport:
    def __init__(self) -> None:
        self.rows: list[MatrixRow] = []

    # Workers of pytest-xdist hand over plain values.

    def plain(self) -> list[dict[str, Any]]:
        return [{**asdict(row), "outcome": str(row.outcome)} for row in self.rows]

    def merge(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            values: dict[str, Any] = {**row, "outcome": MatrixOutcome(row["outcome"])}
            self.rows.append(MatrixRow(**values))

    def write(self, path: Path) -> None:
        """Raises OSError."""
        path.write_text(json.dumps({"runs": sorted(self.plain(), key=_place)}, indent=1) + "\n")

    def lines(self) -> list[str]:
        """A row for each fault, and a line for each run that did not survive."""
        met = [row for row in self.rows if row.outcome is not MatrixOutcome.NOT_MET]
        tests = len({row.test for row in self.rows})
        head = f"ottla: faults matrix: {tests} tests, {len(met)} runs under faults, {_seconds(self.rows)} s"
        if not met:
            return [head]
        return [head, *_table(met), *(_line(row) for row in met if row.outcome is not MatrixOutcome.SURVIVED)]


def _table(rows: Sequence[MatrixRow]) -> list[str]:
    shown = [
        each for each in MatrixOutcome if each is MatrixOutcome.SURVIVED or any(row.outcome is each for row in rows)
    ]
    faults = {row.fault: Counter[MatrixOutcome]() for row in rows}
    for row in rows:
        faults[row.fault][row.outcome] += 1
    width = max(map(len, (*faults, "fault")))
    lines = [f"  {'fault':{width}}  {'  '.join(f'{each:>{len(each)}}' for each in shown)}"]
    for fault, counts in faults.items():
        cells = (f"{counts[each] or '-':>{len(each)}}" for each in shown)
        lines.append(f"  {fault:{width}}  {'  '.join(cells)}")
    return lines


def _line(row: MatrixRow) -> str:
    passed = ", though the test passed" if row.passed else ""
    return f"  {row.test} under {row.fault}: {row.outcome}{passed}: {row.why}"


def _seconds(rows: Iterable[MatrixRow]) -> str:
    return f"{sum(row.seconds for row in rows):.1f}"


def _place(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["test"], row["fault"]

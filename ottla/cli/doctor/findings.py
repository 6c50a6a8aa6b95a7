"""What the doctor says: findings, and what it could not look at.

A finding's `id` is that of its check and a word for what it is about, as `D9.under-replicated`. It stays the same from
release to release, so that a finding can be silenced by it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import IntEnum

# Of a list that is as long as the cluster is large.
NAMED_MAX = 5


class Severity(IntEnum):
    INFO = 0
    """Good to know: nothing has to be done."""
    WARNING = 1
    """It goes on working, with a fault or a risk."""
    CRITICAL = 2
    """Somebody's records or requests are affected now."""

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding. `text` is a sentence with numbers, `advice` what to do, with commands. What is not `is_sure` is
    likely."""

    id: str
    severity: Severity
    subject: str
    text: str
    advice: str
    evidence: tuple[str, ...] = ()
    is_sure: bool = True
    runbook: str | None = None
    """The name of an alert in docs/runbooks.md."""

    @property
    def check(self) -> str:
        return self.id.partition(".")[0]


@dataclass(frozen=True, slots=True)
class NotChecked:
    check: str
    reason: str


@dataclass(frozen=True, slots=True)
class Silence:
    """A finding, or all of a check, that are not shown before `until`; for ever if there is no such day."""

    id: str
    until: date | None = None

    def holds(self, finding: Diagnosis, today: date) -> bool:
        is_meant = self.id in (finding.id, finding.check)
        return is_meant and (self.until is None or today < self.until)


def parse_silence(text: str) -> Silence:
    """ID or ID=YYYY-MM-DD. Raises ValueError with a sentence."""
    name, equals, day = text.partition("=")
    check, _, _ = name.partition(".")
    if not (check.startswith("D") and check[1:].isdecimal()):
        raise ValueError(f"{text!r} does not begin with the id of a finding, as D12 or D12.one-replica")
    try:
        return Silence(name, date.fromisoformat(day) if equals else None)
    except ValueError:
        raise ValueError(f"{day!r} is not a day like 2027-01-31") from None


@dataclass(slots=True)
class Report:
    """All of one examination. `could_look` is False where no broker answered."""

    findings: list[Diagnosis] = field(default_factory=list[Diagnosis])
    not_checked: list[NotChecked] = field(default_factory=list[NotChecked])
    could_look: bool = True
    silenced: int = 0
    looked_at: str = ""

    def add(self, said: Diagnosis | NotChecked) -> None:
        if isinstance(said, Diagnosis):
            self.findings.append(said)
        else:
            self.not_checked.append(said)

    def silence(self, silences: Sequence[Silence], today: date) -> None:
        kept = [each for each in self.findings if not any(silence.holds(each, today) for silence in silences)]
        self.silenced += len(self.findings) - len(kept)
        self.findings = kept

    def sort(self) -> None:
        """The most severe first, then in the order of the checks."""
        self.findings.sort(key=lambda each: (-each.severity, int(each.check[1:]), each.id, each.subject))
        self.not_checked.sort(key=lambda each: (int(each.check[1:]), each.reason))

    def exit_status(self, fail_on: Severity) -> int:
        """docs/operators.md §15.3"""
        if not self.could_look:
            return 1
        return 3 if any(each.severity >= fail_on for each in self.findings) else 0


def named(names: Iterable[object], most: int = NAMED_MAX) -> str:
    """The first of them, and how many more there are."""
    found = [str(each) for each in names]
    more = f" and {len(found) - most:,} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def counted(number: int, thing: str, several: str | None = None) -> str:
    return f"{number:,} {thing if number == 1 else several or thing + 's'}"


def lasted(seconds: float) -> str:
    """A duration as one says it: of its two largest units at most the larger one."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"

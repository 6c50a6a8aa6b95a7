"""What a siege has found: a row for each attack, and the promises that were broken."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.histories.checker import Violation
from tests.histories.events import Acknowledged, Event, FinalLog, Sent
from tests.histories.violations import Partition
from tests.siege.attacks.attack import AT_A_TIME, Attack, May
from tests.siege.broker import Usage
from tests.siege.probe import GROUP as PROBE_GROUP
from tests.siege.probe import NAME as PROBE
from tests.storm.settings import GROUP

# Of the records that are sent while an attack may not delay them. A connection that ends takes those with it that are
# under way, and the probe sends each once.
UNACKNOWLEDGED_SHARE_MAX = 0.01
OUR_GROUPS = (GROUP, PROBE_GROUP)


@dataclass(frozen=True)
class Window:
    """A stretch of time, in microseconds of the histories' clock."""

    start_us: int
    end_us: int

    def __contains__(self, at_us: int) -> bool:
        return self.start_us <= at_us < self.end_us


@dataclass
class Round:
    """One attack, and what was seen of it."""

    attack: type[Attack]
    quiet: Window
    loud: Window
    done: Mapping[str, int]
    before: Usage
    after: Usage
    peak_bytes: int
    longest_step_ms: int
    """Of the broker's loop during the attack, in processor time."""
    log: Sequence[Mapping[str, object]]
    failures: list[str]
    quiet_ms: list[float] = field(default_factory=list)
    """How long each of the probe's records waited for its acknowledgement, sorted: infinitely without one."""
    loud_ms: list[float] = field(default_factory=list)
    sessions_lost: int = 0
    sent: int = 0
    acknowledged: int = 0
    lost: int = 0

    @property
    def ratio(self) -> float:
        """Infinite where either p99 is not known."""
        quiet, loud = percentile(self.quiet_ms, 99), percentile(self.loud_ms, 99)
        return loud / quiet if 0 < quiet < math.inf and loud else math.inf

    def broken(self, memory_max_bytes: int, *, judges_latency: bool = True) -> Iterator[str]:
        """Each promise that does not hold, in a sentence."""
        yield from self.failures
        if self.lost:
            yield f"{self.lost} acknowledged records are lost"
        if self.sessions_lost:
            yield f"{self.sessions_lost} sessions were lost"
        if self.peak_bytes > memory_max_bytes:
            yield f"{self.peak_bytes >> 20} MiB were resident, {memory_max_bytes >> 20} MiB are allowed"
        if May.DELAY not in self.attack.may:
            yield from self._refused_or_late(judges_latency)
        reached, wanted = self.done.get(AT_A_TIME, 0), self.attack.at_a_time
        if judges_latency and reached < wanted:
            yield f"the attack held {reached:,} connections at a time, not {wanted:,}"
        yield from (f"not released: {each}" for each in self.after.kept_since(self.before))

    def _refused_or_late(self, judges_latency: bool) -> Iterator[str]:
        unacknowledged, most = self.sent - self.acknowledged, self.attack.ratio_max
        if not self.sent:
            yield "no record was sent"
        if unacknowledged > UNACKNOWLEDGED_SHARE_MAX * self.sent:
            yield f"{unacknowledged:,} of {self.sent:,} records were not acknowledged"
        if not self.loud_ms:
            yield "the probe sent no record during the attack"
        elif not 0 < percentile(self.quiet_ms, 99) < math.inf:
            yield "p99 of produce is not known before the attack"
        elif judges_latency and self.ratio > most:
            yield f"p99 of produce is {self.ratio:.1f} times what it was before, {most:g} are allowed"


@dataclass
class Report:
    memory_max_bytes: int
    rounds: list[Round] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    at_first: Usage | None = None
    at_last: Usage | None = None

    def fill(
        self, events: Sequence[Event], logs: Mapping[Partition, FinalLog], member: Iterable[tuple[int, str]]
    ) -> None:
        """Gives each round its part of what the clients have seen; `member` is what the probe's member received."""
        sent = {event.value: event for event in events if isinstance(event, Sent)}
        acknowledged = {event.value: event for event in events if isinstance(event, Acknowledged)}
        stored = {value for log in logs.values() for _, value in log.records}
        reports = list(member)
        for each in self.rounds:
            ours = [event for event in sent.values() if event.at_us in each.loud]
            each.sent = len(ours)
            each.acknowledged = sum(event.value in acknowledged for event in ours)
            each.lost = sum(event.value in acknowledged and event.value not in stored for event in ours)
            each.quiet_ms = list(_waits(sent, acknowledged, each.quiet))
            each.loud_ms = list(_waits(sent, acknowledged, each.loud))
            each.sessions_lost = sum(map(_ends_our_session, each.log)) + sum(at_us in each.loud for at_us, _ in reports)

    def broken(self, *, judges_latency: bool = True) -> list[str]:
        rounds = [
            f"{each.attack.name}: {sentence}"
            for each in self.rounds
            for sentence in each.broken(self.memory_max_bytes, judges_latency=judges_latency)
        ]
        return [*rounds, *self.failures, *map(str, self.violations)]


def percentile(ordered: Sequence[float], percent: float) -> float:
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)] if ordered else 0.0


def _waits(sent: Mapping[str, Sent], acknowledged: Mapping[str, Acknowledged], window: Window) -> list[float]:
    """Of the probe's records that were sent in the window."""
    return sorted(
        (acknowledged[value].at_us - event.at_us) / 1000 if value in acknowledged else math.inf
        for value, event in sent.items()
        if event.producer.startswith(PROBE) and event.at_us in window
    )


def _ends_our_session(line: Mapping[str, object]) -> bool:
    return line.get("event") == "SessionExpired" and line.get("group_id") in OUR_GROUPS


TABLE = (
    ("attack", lambda each: each.attack.name),
    ("p50 quiet", lambda each: f"{percentile(each.quiet_ms, 50):.2f}"),
    ("p99 quiet", lambda each: f"{percentile(each.quiet_ms, 99):.2f}"),
    ("p50", lambda each: f"{percentile(each.loud_ms, 50):.2f}"),
    ("p99", lambda each: f"{percentile(each.loud_ms, 99):.2f}"),
    ("longest ms", lambda each: f"{percentile(each.loud_ms, 100):.0f}"),
    ("step", lambda each: f"{each.longest_step_ms}"),
    ("ratio", lambda each: f"{each.ratio:.1f}" + ("*" if May.DELAY in each.attack.may else "")),
    ("peak MiB", lambda each: f"{each.peak_bytes >> 20}"),
    ("after", lambda each: f"{each.after.resident_bytes >> 20}"),
    ("fds", lambda each: f"{each.before.descriptors}-{each.after.descriptors}"),
    ("sessions lost", lambda each: f"{each.sessions_lost}"),
    ("acked", lambda each: f"{each.acknowledged}/{each.sent}"),
    ("lost", lambda each: f"{each.lost}"),
)


def table(rounds: Sequence[Round]) -> Iterator[str]:
    """Lines. An asterisk: the attack may delay others, its ratio is not judged."""
    rows = [[title for title, _ in TABLE], *([show(each) for _, show in TABLE] for each in rounds)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(TABLE))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

"""Committed offsets: each (group, partition) is a register, and a history of it must be linearizable (I-16).

Every commit carries an id of its own, so a read says which commit it saw, and the question has a complete and quick
answer (Gibbons and Korach, "Testing shared memories", 1997). A commit and the reads that saw it form a cluster. From
the first of its operations to end until the last to begin, the register certainly held the cluster's commit: a forward
zone. Where instead all of its operations were under way together, one moment between is enough: a backward zone. A
history is linearizable unless two forward zones overlap or a backward zone lies within a forward one.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from tests.histories.events import (
    NONE_COMMITTED,
    CommitAcknowledged,
    CommitRead,
    CommitRefused,
    CommitSent,
    Event,
)
from tests.histories.violations import Kind, Partition, Violation

Register = tuple[str, Partition]


@dataclass
class _Commit:
    """A commit with all that is known of its reads; `sent` is None for the state before any commit."""

    sent: CommitSent | None
    first_end: float
    last_begin: float
    counts: bool = False
    """Whether anybody knows that it was applied."""

    def seen(self, begin: float, end: float) -> None:
        self.first_end = min(self.first_end, end)
        self.last_begin = max(self.last_begin, begin)
        self.counts = True

    @property
    def is_forward(self) -> bool:
        return self.first_end < self.last_begin

    def __str__(self) -> str:
        return "none" if self.sent is None else f"{self.sent.commit_id} ({self.sent.offset})"


def check_commits(events: Sequence[Event]) -> Iterator[Violation]:
    commits, refused = _commits(events)
    by_offset = _by_offset(commits, refused)
    unwritten: dict[Register, _Commit] = {}
    for read in (event for event in events if isinstance(event, CommitRead)):
        register = _register(read)
        if read.offset == NONE_COMMITTED and not read.commit_id:
            unwritten.setdefault(register, _Commit(None, -inf, -inf)).seen(read.sent_us, read.at_us)
            continue
        candidates = by_offset[register, read.offset]
        if read.commit_id is None and len(candidates) > 1:
            continue
        commit_id = candidates[0] if read.commit_id is None and candidates else read.commit_id
        commit = commits.get(commit_id or "")
        wrong = _why_invented(read, commit, refused)
        if wrong is not None:
            yield Violation(Kind.COMMIT_INVENTED, register[1], f"{read.group} read {wrong}")
        elif commit is not None:
            commit.seen(read.sent_us, read.at_us)
    registers: dict[Register, list[_Commit]] = defaultdict(list)
    for commit in commits.values():
        if commit.counts and commit.sent is not None:
            registers[_register(commit.sent)].append(commit)
    for register, commit in unwritten.items():
        registers[register].append(commit)
    for register, clusters in registers.items():
        yield from _contradictions(register, clusters)


def _by_offset(commits: Mapping[str, _Commit], refused: set[str]) -> dict[tuple[Register, int], list[str]]:
    """The ids of the commits that can be behind an offset that is read."""
    ids: dict[tuple[Register, int], list[str]] = defaultdict(list)
    for commit_id, commit in commits.items():
        if commit.sent is not None and commit_id not in refused:
            ids[_register(commit.sent), commit.sent.offset].append(commit_id)
    return ids


def _register(event: CommitSent | CommitRead) -> Register:
    return event.group, (event.topic, event.partition)


def _commits(events: Iterable[Event]) -> tuple[dict[str, _Commit], set[str]]:
    """All commits by id, with when they were acknowledged, and the ids of those that were refused."""
    commits: dict[str, _Commit] = {}
    acknowledged: list[CommitAcknowledged] = []
    refused: set[str] = set()
    for event in events:
        match event:
            case CommitSent():
                assert event.commit_id not in commits, f"{event.commit_id!r} was sent twice: ids name commits"
                commits[event.commit_id] = _Commit(event, inf, event.at_us)
            case CommitAcknowledged():
                acknowledged.append(event)
            case CommitRefused():
                refused.add(event.commit_id)
            case _:
                pass
    for event in acknowledged:
        commit = commits[event.commit_id]
        commit.first_end = min(commit.first_end, event.at_us)
        commit.counts = True
    return commits, refused


def _why_invented(read: CommitRead, commit: _Commit | None, refused: set[str]) -> str | None:
    found = f"{read.commit_id!r} with offset {read.offset}"
    if commit is None or commit.sent is None:
        return f"{found}, which no client committed"
    sent = commit.sent
    if _register(sent) != _register(read) or sent.offset != read.offset:
        return f"{found}, which was committed as {sent}"
    if read.commit_id in refused:
        return f"{found}, which was refused"
    if read.at_us < sent.at_us:
        return f"{found}, before it was committed"
    return None


def _contradictions(register: Register, clusters: Sequence[_Commit]) -> Iterator[Violation]:
    forward = sorted((one for one in clusters if one.is_forward), key=lambda one: one.first_end)
    for earlier, later in pairwise(forward):
        if later.first_end < earlier.last_begin:
            yield _went_back(register, earlier, later)
    starts = [one.first_end for one in forward]
    for one in clusters:
        if one.is_forward:
            continue
        before = bisect_right(starts, one.last_begin) - 1
        if before >= 0 and starts[before] < one.last_begin and one.first_end < forward[before].last_begin:
            yield _went_back(register, forward[before], one)


def _went_back(register: Register, held: _Commit, between: _Commit) -> Violation:
    """`held` was read after `between`, though it was there before."""
    group, partition = register
    kind = Kind.COMMIT_LOST if held.sent is None else Kind.COMMIT_MOVED_BACK
    return Violation(kind, partition, f"{group} read {held} after {between} had been committed")

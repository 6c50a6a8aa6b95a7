"""What the report says of each group before it shows anything: how often it rebalanced, how long some partition had no
owner while the group had members, and for whom the others waited of that time."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from ottla.pipeline.report.reading import Findings

Stretch: TypeAlias = tuple[int, int]
"""From and until, in milliseconds."""
# What brokers add to the client's own name.
_ADDED = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")

_NEVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class Wait:
    """All that others waited for one member."""

    group_id: str
    name: str
    times: int
    total_ms: int
    longest_ms: int


@dataclass(frozen=True, slots=True)
class Answer:
    group_id: str
    rebalances: int
    incomplete_ms: int
    """How long at least one partition had no owner while the group had members."""
    waited_for: str | None
    waited_ms: int
    """How long of that the others waited for the member that they waited longest for."""

    @property
    def text(self) -> str:
        """After the name of the group."""
        counted = f"{self.rebalances:,} {'rebalance' if self.rebalances == 1 else 'rebalances'}"
        if not self.incomplete_ms:
            return f"{counted}, no time without all partitions"
        waited = f", {seconds(self.waited_ms)} of it waiting for {self.waited_for}" if self.waited_ms else ""
        return f"{counted}, {seconds(self.incomplete_ms)} without all partitions{waited}"


class Names:
    """Of members, as short as they are unique: a client id stays over restarts, where no two members share it."""

    def __init__(self, ownership: Sequence[Any]) -> None:
        held: defaultdict[tuple[str, str], dict[str, Stretch]] = defaultdict(dict)
        for row in ownership:
            key = (row["group_id"], name_in(row["member_id"]))
            first_ms, last_ms = held[key].get(row["owner"], (row["from_ms"], row["from_ms"]))
            until_ms = _NEVER_MS if row["until_ms"] is None else row["until_ms"]
            held[key][row["owner"]] = (min(first_ms, row["from_ms"]), max(last_ms, until_ms))
        self._shared = {key for key, stretches in held.items() if _overlap(stretches.values())}

    def of(self, group_id: str, member_id: str) -> str:
        name = name_in(member_id)
        return f"{name}…{member_id[-6:]}" if (group_id, name) in self._shared else name


def answers(findings: Findings, names: Names) -> list[Answer]:
    """The group that was incomplete for longest comes first."""
    gaps = gaps_of(findings)
    by_group: defaultdict[str, list[Any]] = defaultdict(list)
    for row in findings.rebalances:
        by_group[row["group_id"]].append(row)
    found = [_answer(group_id, rows, gaps.get(group_id, []), names) for group_id, rows in by_group.items()]
    return sorted(found, key=lambda answer: (-answer.incomplete_ms, -answer.rebalances, answer.group_id))


def gaps_of(findings: Findings) -> dict[str, list[Stretch]]:
    """The stretches, apart from each other, in which a group had a partition without an owner."""
    found: defaultdict[str, list[Stretch]] = defaultdict(list)
    for row in findings.ownership:
        if row["unowned_ms"]:
            found[row["group_id"]].append((row["unowned_from_ms"], row["unowned_from_ms"] + row["unowned_ms"]))
    return {group_id: _joined(stretches) for group_id, stretches in found.items()}


def waits(findings: Findings, names: Names) -> list[Wait]:
    """For whom the others waited longest, first."""
    waited_ms: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for row in findings.rebalances:
        if row["slowest_ms"]:
            waited_ms[row["group_id"], names.of(row["group_id"], row["slowest_member_id"])].append(row["slowest_ms"])
    found = [Wait(*key, len(each), sum(each), max(each)) for key, each in waited_ms.items()]
    return sorted(found, key=lambda wait: (-wait.total_ms, wait.group_id, wait.name))


def name_in(member_id: str) -> str:
    """The client's own name in a member id."""
    return _ADDED.sub("", member_id)


def seconds(milliseconds: int) -> str:
    """With a digit after the point where that is more than noise."""
    return f"{milliseconds / 1000:,.1f} s" if milliseconds < 10_000 else f"{milliseconds / 1000:,.0f} s"


def _answer(group_id: str, rebalances: Sequence[Any], gaps: Sequence[Stretch], names: Names) -> Answer:
    waited: defaultdict[str, int] = defaultdict(int)
    for row in rebalances:
        if row["slowest_ms"]:
            wait = (row["started_ms"], row["started_ms"] + row["slowest_ms"])
            waited[names.of(group_id, row["slowest_member_id"])] += sum(_common_ms(wait, gap) for gap in gaps)
    longest = max(waited, key=lambda name: waited[name], default=None)
    incomplete_ms = sum(until_ms - from_ms for from_ms, until_ms in gaps)
    return Answer(group_id, len(rebalances), incomplete_ms, longest, waited[longest] if longest else 0)


def _joined(stretches: Iterable[Stretch]) -> list[Stretch]:
    joined: list[Stretch] = []
    for from_ms, until_ms in sorted(stretches):
        if joined and from_ms <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], until_ms))
        else:
            joined.append((from_ms, until_ms))
    return joined


def _overlap(stretches: Iterable[Stretch]) -> bool:
    ordered = sorted(stretches)
    return any(later[0] < earlier[1] for earlier, later in pairwise(ordered))


def _common_ms(one: Stretch, other: Stretch) -> int:
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))

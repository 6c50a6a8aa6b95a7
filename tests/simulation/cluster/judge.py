"""What several coordinators may answer members of groups, of which one may not know that its time is over.

What a coordinator answers from memory (joins, heartbeats) binds only itself, in its present term. What it has
written and its followers have (assignments, offsets) binds all that come after it.
"""

from dataclasses import dataclass

from tests.simulation.judge import GroupHistory, Judge, Sent
from tests.simulation.trace import Trace

WRITTEN = {"sync", "commit"}


@dataclass
class ClusterGroupHistory(GroupHistory):
    def highest_known(self, incarnation: int) -> int:
        return self.highest_joined[incarnation]


class ClusterJudge(Judge):
    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        # Terms of coordinators that are over. What they said last may still be on its way.
        self.ended: set[int] = set()

    def begin_term(self, before: int) -> int:
        """Another number for a broker that has lost or won the leadership of a partition of `__consumer_offsets`."""
        self.ended.add(before)
        self.incarnation += 1
        return self.incarnation

    def group(self, group_id: str) -> GroupHistory:
        if group_id not in self.groups:
            self.groups[group_id] = ClusterGroupHistory(group_id)
        return self.groups[group_id]

    def joined(self, group_id: str, sent: Sent, response: object) -> None:
        if sent.incarnation not in self.ended:
            super().joined(group_id, sent, response)

    def accepted(self, what: str, group_id: str, sent: Sent, generation: int, member_id: str) -> None:
        if what in WRITTEN and generation < sent.highest_completed:
            how = f"{group_id}: {what} of {member_id} in generation {generation} after {sent.highest_completed}"
            self.violated("I-13", how)
        if sent.incarnation not in self.ended:
            super().accepted(what, group_id, sent, generation, member_id)

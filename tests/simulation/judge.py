"""Keeps what clients were answered, and says when two of the things contradict one another.

Whatever is compared with what other clients have seen is compared with what they had seen *when the request was
sent*: answers overtake one another on different connections, but what was known before, the broker knew too.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.offsets import OffsetLedger
from tests.simulation.trace import Trace

UUID_SUFFIX_LENGTH = 37
STATIC_PREFIX = "inst"


def static_id_of(member_id: str) -> str:
    """What stays the same when a static member is replaced; for a dynamic member, its id."""
    return member_id[:-UUID_SUFFIX_LENGTH] if member_id.startswith(STATIC_PREFIX) else member_id


@dataclass
class GroupHistory:
    """What the members of one group were answered. Generations by (life of the broker, generation)."""

    group_id: str
    offsets: OffsetLedger = field(default_factory=OffsetLedger)
    protocols: dict[tuple[int, int], tuple[str | None, str]] = field(default_factory=dict)
    nonces: dict[int, str] = field(default_factory=dict)
    highest_joined: dict[int, int] = field(default_factory=lambda: defaultdict(lambda: -1))
    highest_completed: int = -1
    static_members: dict[tuple[int, str], tuple[str, int]] = field(default_factory=dict)
    """The member id of a static member, and when its client knew, by (life of the broker, instance id)."""
    fenced: set[tuple[int, str]] = field(default_factory=set)

    def highest_known(self, incarnation: int) -> int:
        return max(self.highest_completed, self.highest_joined[incarnation])


@dataclass(frozen=True)
class Sent:
    """What was known when a request left."""

    incarnation: int
    at_us: int
    highest_generation: int
    highest_completed: int
    member_was_fenced: bool


class Judge:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.violations: list[str] = []
        self.incarnation = 0
        # Answers of lives before this one bind no later one: they may still be on their way.
        self.binding_since = 0
        # How much longer than by the broker's fault an answer may take on this network.
        self.network_allowance_ms = 0
        # Whether the broker behind a connection serves: one that waits for its metadata store lets clients wait too.
        self.serves: Callable[[Any], bool] = lambda wire: True
        self.groups: dict[str, GroupHistory] = {}
        self.counts: dict[str, int] = defaultdict(int)
        self._owners_of_producer_ids: dict[int, str] = {}

    def violated(self, invariant: str, how: str) -> None:
        self.trace.note("VIOLATED", invariant, how)
        self.violations.append(f"{invariant}: {how}")

    def group(self, group_id: str) -> GroupHistory:
        if group_id not in self.groups:
            self.groups[group_id] = GroupHistory(group_id)
        return self.groups[group_id]

    def sending(self, group_id: str, incarnation: int, member_id: str) -> Sent:
        group = self.group(group_id)
        fenced = (incarnation, member_id) in group.fenced
        known = group.highest_known(incarnation)
        return Sent(incarnation, self.trace.now_us(), known, group.highest_completed, fenced)

    def power_was_lost(self) -> None:
        """What was not synced is gone, so no answer from before binds the broker any more."""
        self.binding_since = self.incarnation + 1
        for group in self.groups.values():
            group.highest_completed = -1
            group.nonces.clear()
            group.offsets.history_may_be_cut()

    def group_died(self, group_id: str) -> None:
        """Empty and without offsets; a group of that name begins with generation 0 again. Its offsets are looked at on
        their own."""
        group = self.group(group_id)
        group.highest_completed = -1
        group.highest_joined.clear()
        group.protocols.clear()
        group.nonces.clear()

    # What clients report.

    def producer_id_given(self, producer_id: int, owner: str) -> None:
        """`owner` is a transactional id, or one life of an idempotent producer."""
        known = self._owners_of_producer_ids.setdefault(producer_id, owner)
        if known != owner:
            self.violated("I-8", f"{owner} was given producer id {producer_id}, as {known} was")

    def joined(self, group_id: str, sent: Sent, response: object) -> None:
        """A successful JoinGroup."""
        group = self.group(group_id)
        generation, leader = response.generation_id, response.leader  # type: ignore[attr-defined]
        member_id, members = response.member_id, response.members  # type: ignore[attr-defined]
        self.counts["joined"] += 1
        if generation < sent.highest_generation:
            self.violated("I-8", f"{group_id}: generation {generation} after {sent.highest_generation}")
        if sent.member_was_fenced:
            self.violated("I-14", f"{group_id}: {member_id} joined after it was fenced")
        key = (sent.incarnation, generation)
        chosen = (response.protocol_name, static_id_of(leader))  # type: ignore[attr-defined]
        if group.protocols.setdefault(key, chosen) != chosen:
            self.violated("I-11", f"{group_id} generation {generation}: {chosen} and {group.protocols[key]}")
        if bool(members) != (leader == member_id):
            self.violated("I-11", f"{group_id}: {len(members)} members sent to {member_id}, the leader is {leader}")
        group.highest_joined[sent.incarnation] = max(group.highest_joined[sent.incarnation], generation)
        self._joined_as(group, sent, member_id)

    def synced(self, group_id: str, sent: Sent, generation: int, member_id: str, assigned: str | None) -> None:
        """A successful SyncGroup. `assigned` is what the leader wrote into this assignment, None if nothing."""
        group = self.group(group_id)
        self.counts["synced"] += 1
        self.accepted("sync", group_id, sent, generation, member_id)
        if sent.incarnation < self.binding_since:
            return
        group.highest_completed = max(group.highest_completed, generation)
        if assigned is None:
            return
        nonce, addressee = assigned.split("/", 1)
        if group.nonces.setdefault(generation, nonce) != nonce:
            self.violated("I-12", f"{group_id} generation {generation}: {nonce} and {group.nonces[generation]}")
        if addressee != static_id_of(member_id):
            self.violated("I-12", f"{group_id} generation {generation}: {member_id} got what is {addressee}'s")

    def accepted(self, what: str, group_id: str, sent: Sent, generation: int, member_id: str) -> None:
        """Any other request of a member succeeded."""
        self.counts[what] += 1
        if generation < sent.highest_generation:
            how = f"{group_id}: {what} of {member_id} in generation {generation} after {sent.highest_generation}"
            self.violated("I-13", how)
        if sent.member_was_fenced:
            self.violated("I-14", f"{group_id}: {what} of {member_id} after it was fenced")

    def _joined_as(self, group: GroupHistory, sent: Sent, member_id: str) -> None:
        static_id = static_id_of(member_id)
        if static_id == member_id:
            return
        key = (sent.incarnation, static_id)
        holder, known_us = group.static_members.pop(key, (member_id, 0))
        if holder == member_id or known_us < sent.at_us:
            group.static_members[key] = (member_id, self.trace.now_us())
        # Of two joins under way together, only the broker can say which replaced the other.
        if holder != member_id and known_us < sent.at_us:
            group.fenced.add((sent.incarnation, holder))

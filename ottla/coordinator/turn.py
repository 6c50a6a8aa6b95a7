"""What the handlers of one partition work with: its groups, what its log says, and the effects of the running step."""

from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.coordinator.appends import AppendBook
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.durable import DurableState
from ottla.coordinator.effects import Append, CancelTimer, CoordinatorRecord, Effect, Observed, Reply, SetTimer
from ottla.coordinator.events import TimerKey
from ottla.coordinator.facts import Fact, StateChanged
from ottla.coordinator.group import Group
from ottla.coordinator.results import Result
from ottla.coordinator.states import DEAD, GroupState
from ottla.protocol.errors import ErrorCode


class AfterAppend(Protocol):
    """What waits for records to be in the log. Exactly one of the two is called, once."""

    def completed(self, turn: "Turn") -> None:
        """The records are committed and replayed."""
        ...

    def failed(self, turn: "Turn", error: ErrorCode) -> None:
        """They are not; `error` is the log's, or NOT_COORDINATOR when the partition was given up."""
        ...


class Turn:
    """One object per partition, used for one step after the other."""

    __slots__ = ("appends", "config", "durable", "effects", "groups", "new_member_id", "now_ms", "wall_ms")

    def __init__(self, config: GroupConfig, new_member_id: Callable[[str], str]) -> None:
        self.config = config
        self.new_member_id = new_member_id
        self.groups: dict[str, Group] = {}
        self.durable = DurableState()
        self.appends: AppendBook[AfterAppend] = AppendBook()
        self.now_ms = 0
        self.wall_ms = 0
        self.effects: list[Effect] = []

    def begin(self, now_ms: int, wall_ms: int) -> None:
        assert now_ms >= self.now_ms, "the clock went backwards"
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.effects = []

    def reply(self, token: int, result: Result) -> None:
        self.effects.append(Reply(token, result))

    def observe(self, fact: Fact) -> None:
        self.effects.append(Observed(fact))

    def set_timer(self, key: TimerKey, deadline_ms: int) -> None:
        self.effects.append(SetTimer(key, deadline_ms))

    def cancel_timer(self, key: TimerKey) -> None:
        self.effects.append(CancelTimer(key))

    def append(self, group_id: str, records: Sequence[CoordinatorRecord], after: AfterAppend) -> None:
        append_id = self.appends.open(group_id, tuple(records), after)
        self.effects.append(Append(append_id, tuple(records)))

    def transition(self, group: Group, state: GroupState, reason: str) -> None:
        from_state = group.state
        group.transition_to(state, self.wall_ms)
        self.observe(StateChanged(group.group_id, group.generation, from_state, state, reason))

    def take_up_if_known(self, group_id: str) -> None:
        """A group exists from its first committed record on: a simple group has no other beginning."""
        if group_id not in self.groups and self.durable.knows(group_id):
            self.groups[group_id] = Group(group_id)

    def live_group(self, group_id: str) -> Group | None:
        """The group, unless it is Dead: for requests to which both are the same."""
        group = self.groups.get(group_id)
        return None if group is None or group.state is DEAD else group

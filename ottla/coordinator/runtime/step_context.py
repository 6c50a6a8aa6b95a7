"""What the steps of one partition work with: the time, the appends that are open, and the effects of the running step.

What a partition holds extends `StepContext` with its own state.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from ottla.coordinator.runtime.appends import AppendBook
from ottla.coordinator.runtime.effects import Append, CancelTimer, CoordinatorRecord, Effect, Observed, Reply, SetTimer
from ottla.protocol.errors import ErrorCode


class AfterAppend(Protocol):
    """What waits for records to be in the log. Exactly one of the two is called, once, with the partition's context."""

    def completed(self, context: Any, /) -> None:
        """The records are committed and replayed."""
        ...

    def failed(self, context: Any, error: ErrorCode, /) -> None:
        """They are not; `error` is the log's, or NOT_COORDINATOR when the partition is no longer led here."""
        ...


class StepContext:
    """One object per partition, used for one step after the other."""

    __slots__ = ("appends", "effects", "now_ms", "on_append", "wall_ms")

    def __init__(self) -> None:
        self.appends: AppendBook[AfterAppend] = AppendBook()
        self.now_ms = 0
        self.wall_ms = 0
        self.effects: list[Effect] = []
        # Set by a partition whose state changes at the append, not at the commit.
        self.on_append: Callable[[int, Sequence[CoordinatorRecord]], None] | None = None

    def begin(self, now_ms: int, wall_ms: int) -> None:
        assert now_ms >= self.now_ms, "the clock went backwards"
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.effects = []

    def reply(self, token: int, result: object) -> None:
        self.effects.append(Reply(token, result))

    def observe(self, fact: object) -> None:
        self.effects.append(Observed(fact))

    def set_timer(self, key: Hashable, deadline_ms: int) -> None:
        self.effects.append(SetTimer(key, deadline_ms))

    def cancel_timer(self, key: Hashable) -> None:
        self.effects.append(CancelTimer(key))

    def append(self, owner: str, records: Sequence[CoordinatorRecord], after: AfterAppend) -> None:
        """Append the records as one batch. `owner` names what they are about: a group, a transactional id."""
        append_id = self.appends.open(owner, tuple(records), after)
        self.effects.append(Append(append_id, tuple(records)))
        if self.on_append is not None:
            self.on_append(append_id, records)

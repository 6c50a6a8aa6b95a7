"""What the steps of one partition work with: the time, the appends that are open, and the effects of the running step.

What a partition holds extends `StepContext` with its own state.

A step about very many members is done in slices: its handler hands a generator to `run`, which yields after each slice.
It is still one step: it has one time, and no other event comes in between.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final, Protocol

from ottla.coordinator.runtime.appends import AppendBook
from ottla.coordinator.runtime.effects import (
    Append,
    CancelTimer,
    CoordinatorRecord,
    Dispatch,
    Effect,
    Observed,
    ProducerIdAndEpoch,
    Reply,
    SetTimer,
)
from ottla.protocol.errors import ErrorCode
from ottla.timer.clock import TimerKind

MEMBERS_PER_SLICE: Final = 64
"""What is decided about a member takes some 30 µs, with its effects: so many take two milliseconds."""

NO_BOUND: Final = 1 << 62


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

    # fmt: off
    __slots__ = (
        "appends", "batch_bytes_max", "effects", "is_unloading", "members_per_slice", "now_ms", "on_append", "rest",
        "wall_ms",
    )
    # fmt: on

    def __init__(self) -> None:
        self.appends: AppendBook[AfterAppend] = AppendBook()
        self.now_ms = 0
        self.wall_ms = 0
        self.effects: list[Effect] = []
        # Set by a partition whose state changes at the append, not at the commit.
        self.on_append: Callable[[int, Sequence[CoordinatorRecord]], None] | None = None
        # What a step leaves to do for later is done at once, and may be dropped where no one waits for it.
        self.is_unloading = False
        # What the log takes in one batch.
        self.batch_bytes_max: Callable[[], int] = lambda: NO_BOUND
        self.members_per_slice = MEMBERS_PER_SLICE
        # Slices of the running step that are still to be done, in this order.
        self.rest: deque[Iterator[None]] = deque()

    def begin(self, now_ms: int, wall_ms: int) -> None:
        assert now_ms >= self.now_ms, "the clock went backwards"
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.effects = []

    def run(self, slices: Iterator[None]) -> None:
        """Does the first slice now, and leaves the others for `go_on`. A handler calls it last: what stands behind the
        call comes before the other slices."""
        if not self.rest:
            for _ in slices:
                break
            else:
                return
        self.rest.append(slices)

    def go_on(self) -> None:
        """Does the next slice, for a step that has a rest."""
        self.effects = []
        slices = self.rest.popleft()
        for _ in slices:
            self.rest.appendleft(slices)
            return

    def finish(self) -> None:
        """Does all that is left of the step at once. The effects come behind those there are."""
        while self.rest:
            for _ in self.rest.popleft():
                pass

    def reply(self, token: int, result: object) -> None:
        self.effects.append(Reply(token, result))

    def observe(self, fact: object) -> None:
        self.effects.append(Observed(fact))

    def dispatch(self, command: object) -> None:
        self.effects.append(Dispatch(command))

    def set_timer(self, key: Hashable, deadline_ms: int, kind: TimerKind = TimerKind.TRANSPORT) -> None:
        """`kind`: whose deadline it is; of what waits for the log or another broker, TRANSPORT."""
        self.effects.append(SetTimer(key, deadline_ms, kind))

    def cancel_timer(self, key: Hashable) -> None:
        self.effects.append(CancelTimer(key))

    def append(
        self,
        owner: str,
        records: Sequence[CoordinatorRecord],
        after: AfterAppend,
        *,
        ends_transaction: bool = False,
    ) -> None:
        """Append the records as one batch. `owner` names what they are about: a group, a transactional id."""
        append_id = self.appends.open(owner, tuple(records), after)
        self.effects.append(Append(append_id, tuple(records), ends_transaction=ends_transaction))
        if self.on_append is not None:
            self.on_append(append_id, records)

    def append_in_transaction(
        self,
        owner: str,
        records: Sequence[CoordinatorRecord],
        after: AfterAppend,
        producer: ProducerIdAndEpoch,
        guard: Any,
    ) -> None:
        """As `append`, in a transaction of the producer. `completed` comes before the transaction's marker."""
        assert self.on_append is None, "what a transaction changes is known at its marker, not at the append"
        append_id = self.appends.open(owner, tuple(records), after, producer.producer_id)
        self.effects.append(Append(append_id, tuple(records), producer, guard))

"""A hierarchical timing wheel: the deadlines of sessions, delayed joins, parked fetches and acknowledgements.

Time is cut into ticks. The lowest wheel has one slot per tick; the slots of each further wheel are as long as the whole
wheel below, and a wheel is made when the first entry needs it. An entry lies in the lowest wheel that reaches as far as
its deadline. When the hand comes to a slot of a higher wheel, the entries in it move down; in the lowest wheel they
are due. So an entry moves at most once per wheel, and only slots that hold something cost anything.

    8 slots of 200 ms    due in 700 ms                   due in 2 s
    hand at 0            lowest wheel, fourth slot       second wheel, first slot (1600 to 3200)
    hand at 800          due                             the same
    hand at 1600                                         lowest wheel, second slot

A slot is a doubly linked list that its entries themselves form, so that a cancelled entry is gone at once: a heartbeat
that restarts a session leaves nothing behind. A heap with at most one item per slot says which slot comes next; it
stands for the delay queue in Kafka's `SystemTimer`, and notifies the owner of the wheel when to call `advance` again.

A deadline is rounded up to a tick, so that nothing is early and nothing is as much as a whole tick late. What is due
runs in the order of the deadlines, and within one deadline in the order in which it was scheduled.
"""

from collections.abc import Callable, Hashable, Iterator
from heapq import heappop, heappush

from ottla.timer.clock import TimerKind

FINISHED = -1
NOT_QUEUED = -1


class Link:
    """A place in a doubly linked list."""

    __slots__ = ("after", "before")

    before: "Link"
    after: "Link"


# Stands where a neighbour would, in an entry that lies in no slot.
NOWHERE = Link()


class TimerEntry(Link):
    """What `TimingWheel.schedule` gives: the handle by which a timer is cancelled or moved."""

    __slots__ = ("action", "deadline_ms", "number", "wheel")

    def __init__(self, wheel: "TimingWheel", action: Callable[[], None]) -> None:
        self.wheel = wheel
        self.action = action
        self.deadline_ms = 0
        self.number = FINISHED
        self.before = NOWHERE
        self.after = NOWHERE

    @property
    def pending(self) -> bool:
        """Neither run nor cancelled yet. While its action runs, an entry is no longer pending."""
        return self.number != FINISHED

    def cancel(self) -> bool:
        """Take the entry out of the wheel; says whether it was still pending."""
        return self.wheel.cancel(self)

    def reschedule(self, deadline_ms: int) -> None:
        """As cancelling and scheduling again, and cheaper; an entry that has run or was cancelled is armed again."""
        self.wheel.reschedule(self, deadline_ms)

    def __repr__(self) -> str:
        return f"TimerEntry(deadline_ms={self.deadline_ms}, pending={self.pending})"


class Slot(Link):
    """The ring of entries of one slot, of which it is itself the beginning and the end."""

    __slots__ = ("expiration_tick", "level")

    def __init__(self, level: int) -> None:
        self.level = level
        # When the hand comes to this slot. Invariant: the heap holds the slot once, unless this is NOT_QUEUED.
        self.expiration_tick = NOT_QUEUED
        self.before = self
        self.after = self

    def take_all(self) -> list[TimerEntry]:
        """Empty the slot; gives its entries in the order in which they lay."""
        entries: list[TimerEntry] = []
        link = self.after
        while isinstance(link, TimerEntry):
            entries.append(link)
            following = link.after
            link.before = link.after = NOWHERE
            link = following
        self.before = self.after = self
        return entries


class WheelLevel:
    """One wheel of the hierarchy: its slots and how far they reach."""

    __slots__ = ("level", "limit_tick", "slots", "span_ticks")

    def __init__(self, level: int, wheel_size: int, hand_tick: int) -> None:
        self.level = level
        self.span_ticks: int = wheel_size**level
        self.slots: list[Slot] = [Slot(level) for _ in range(wheel_size)]
        self.limit_tick = 0
        self.turn_to(hand_tick)

    def turn_to(self, hand_tick: int) -> bool:
        """Says whether the hand has come to another slot; if not, neither has that of any higher wheel."""
        # The slot under the hand is spent: ticks up to, and not including, one turn from its beginning have a slot.
        limit_tick = (hand_tick // self.span_ticks + len(self.slots)) * self.span_ticks
        has_moved = limit_tick != self.limit_tick
        self.limit_tick = limit_tick
        return has_moved


class TimingWheel:
    """Runs actions when their time has come; its owner says what time it is.

    `advance` is to be called with a monotonic clock whenever `next_wakeup_ms` has been reached. What an action may do:
    schedule, cancel and reschedule, itself too. What it may not do: call `advance`.
    """

    def __init__(self, tick_ms: int = 1, wheel_size: int = 20, start_ms: int = 0) -> None:
        assert tick_ms >= 1, f"a tick of {tick_ms} ms, at least 1 expected"
        assert wheel_size >= 2, f"{wheel_size} slots in a wheel, at least 2 expected"
        self._tick_ms = tick_ms
        self._wheel_size = wheel_size
        self._now_ms = start_ms
        self._hand_tick = start_ms // tick_ms
        self._wheels: list[WheelLevel] = [WheelLevel(0, wheel_size, self._hand_tick)]
        # Slots by (expiration tick, -level): of those that expire together the highest is first, to be moved down.
        self._queue: list[tuple[int, int, Slot]] = []
        # Scheduled with a deadline that had passed already; run by the next `advance`.
        self._overdue = Slot(level=-1)
        # A heap of what the current `advance` still has to run. An item counts while it bears its entry's number.
        self._ready: list[tuple[int, int, TimerEntry]] = []
        self._next_number = 0
        self._size = 0
        self._advancing = False

    def __len__(self) -> int:
        """The number of pending entries."""
        return self._size

    def schedule(
        self,
        deadline_ms: int,
        action: Callable[[], None],
        kind: TimerKind = TimerKind.TRANSPORT,  # noqa: ARG002 - for wheels with two sorts of timers
        key: Hashable = None,  # noqa: ARG002
    ) -> TimerEntry:
        """Have `action` run at the deadline. One that has passed already is run by the next `advance`, never here.

        `kind` and `key` say what the timer is for, and which one of that kind; this wheel runs all of them alike."""
        entry = TimerEntry(self, action)
        entry.deadline_ms = deadline_ms
        entry.number = self._next_number
        self._next_number += 1
        self._size += 1
        self._insert(entry)
        return entry

    def cancel(self, entry: TimerEntry) -> bool:
        if entry.number == FINISHED:
            return False
        entry.number = FINISHED
        self._size -= 1
        before = entry.before
        if before is not NOWHERE:
            after = entry.after
            before.after = after
            after.before = before
            entry.before = entry.after = NOWHERE
        return True

    def reschedule(self, entry: TimerEntry, deadline_ms: int) -> None:
        if entry.number == FINISHED:
            self._size += 1
        before = entry.before
        if before is not NOWHERE:
            after = entry.after
            before.after = after
            after.before = before
        entry.deadline_ms = deadline_ms
        entry.number = self._next_number
        self._next_number += 1
        self._insert(entry)

    def entries(self) -> Iterator[TimerEntry]:
        """All that is pending, in no order."""
        for slot in (self._overdue, *(slot for level in self._wheels for slot in level.slots)):
            link = slot.after
            while isinstance(link, TimerEntry):
                yield link
                link = link.after
        yield from (entry for _, number, entry in self._ready if entry.number == number)

    def next_wakeup_ms(self) -> int | None:
        """When `advance` is needed next, at the latest; None while nothing is pending."""
        if self._ready or self._overdue.after is not self._overdue:
            return self._now_ms
        queue = self._queue
        while queue:
            expiration_tick, _, slot = queue[0]
            if slot.after is not slot:
                return expiration_tick * self._tick_ms
            # Everything in it was cancelled.
            heappop(queue)
            slot.expiration_tick = NOT_QUEUED
        return None

    def advance(self, now_ms: int) -> None:
        """Run what is due.

        All of it is run even if an action raises; the exceptions come out together at the end, as an `ExceptionGroup`.
        """
        assert now_ms >= self._now_ms, f"the clock went backwards, from {self._now_ms} to {now_ms} ms"
        assert not self._advancing, "an action called advance"
        self._now_ms = now_ms
        target_tick = now_ms // self._tick_ms
        errors: list[Exception] = []
        self._advancing = True
        try:
            self._run_ready(errors)
            while self._queue and self._queue[0][0] <= target_tick:
                self._turn_to(self._queue[0][0])
                self._run_ready(errors)
            if target_tick > self._hand_tick:
                self._turn_to(target_tick)
        finally:
            self._advancing = False
        if errors:
            raise ExceptionGroup("timer actions failed", errors)

    def position(self, entry: TimerEntry) -> tuple[int, int] | None:
        """Which wheel an entry lies in, the lowest being 0, and how many slots from the hand; None if in none."""
        link: Link = entry
        while isinstance(link, TimerEntry):
            link = link.after
        if not isinstance(link, Slot) or link is self._overdue:
            return None
        span_ticks = self._wheels[link.level].span_ticks
        return link.level, (link.expiration_tick - self._hand_tick // span_ticks * span_ticks) // span_ticks

    def _insert(self, entry: TimerEntry) -> None:
        tick = -(-entry.deadline_ms // self._tick_ms)
        if tick <= self._hand_tick:
            slot = self._overdue
        else:
            for wheel in self._wheels:
                if tick < wheel.limit_tick:
                    break
            else:
                wheel = self._add_wheels_up_to(tick)
            span_ticks = wheel.span_ticks
            turn = tick // span_ticks
            slot = wheel.slots[turn % self._wheel_size]
            expiration_tick = turn * span_ticks
            if slot.expiration_tick != expiration_tick:
                slot.expiration_tick = expiration_tick
                heappush(self._queue, (expiration_tick, -wheel.level, slot))
        last = slot.before
        entry.before = last
        entry.after = slot
        last.after = entry
        slot.before = entry

    def _add_wheels_up_to(self, tick: int) -> WheelLevel:
        while tick >= self._wheels[-1].limit_tick:
            self._wheels.append(WheelLevel(len(self._wheels), self._wheel_size, self._hand_tick))
        return self._wheels[-1]

    def _turn_to(self, tick: int) -> None:
        """Move the hand to where the next slot expires, or short of it, and take out what is there."""
        self._hand_tick = tick
        for wheel in self._wheels:
            if not wheel.turn_to(tick):
                break
        queue = self._queue
        hand_ms = tick * self._tick_ms
        while queue and queue[0][0] == tick:
            slot = heappop(queue)[2]
            slot.expiration_tick = NOT_QUEUED
            for entry in slot.take_all():
                if entry.deadline_ms <= hand_ms:
                    self._ready.append((entry.deadline_ms, entry.number, entry))
                else:
                    self._insert(entry)
        self._ready.sort()

    def _run_ready(self, errors: list[Exception]) -> None:
        ready = self._ready
        overdue = self._overdue
        while True:
            # Also what the action just run has scheduled for a moment that has passed.
            if overdue.after is not overdue:
                for entry in overdue.take_all():
                    heappush(ready, (entry.deadline_ms, entry.number, entry))
            if not ready:
                return
            _, number, entry = heappop(ready)
            if entry.number != number:
                continue
            entry.number = FINISHED
            self._size -= 1
            try:
                entry.action()
            except Exception as error:
                errors.append(error)

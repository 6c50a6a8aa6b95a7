"""Turns: how the loop stays open to all when some clients ask for more than it can give at once.

A step of the loop handles what has arrived on each connection. Little would arrive on most, but one read can bring
forty thousand small requests, and a fetch can ask for fifty megabytes; a hundred clients that do so at the same time
would keep all others waiting for seconds. So the work of a step is bounded, and what exceeds it waits for its turn:

- when the requests of a step have taken `TURN_NS`, each connection handles one more of its own, which is all that most
  of them have, and then reads nothing (`Connection`); a Fetch of dozens of partitions is left for later, and so is
  a JoinGroup or SyncGroup, for a rebalance brings one from each of a thousand members at the same time;
- fetches that have read `READ_BYTES_PER_STEP` between them let no further fetch read in this step (`DelayedFetch`).

Those that wait are served in the order of their arrival, in each step of the loop one, or as many as take `TURN_NS`
together. Then the loop takes up what other connections have sent in the meantime: a client that asks for little waits
for one turn, and not for all that are before it. Nor does it if it has a few requests more than one, as a producer has
that was kept waiting once: connections of which little waits have a queue of their own, and each step serves both.
"""

from collections import deque
from collections.abc import Callable

TURN_NS = 1_000_000
# Between the begins of two requests of a rush there is less.
PAUSE_NS = TURN_NS
NEVER = -PAUSE_NS - 1
# How often a connection looks whether its turn is over, after its first request and after one that is long.
REQUESTS_PER_LOOK = 4
LONG_REQUEST = 4096
# Requests of so many bytes are little to wait for, unless they have used up a turn already.
LITTLE_BYTES = 16 << 10
READ_BYTES_PER_STEP = 1 << 20
LITTLE_READ_BYTES = READ_BYTES_PER_STEP // 2
# What a fetch costs even if there is nothing to read, for itself and for each partition, as bytes that are read in the
# same time: some fifty fetches of one partition fit into a step, or four of sixty-four: two milliseconds either way.
READ_COST_BYTES = 16 << 10
PARTITION_COST_BYTES = 4 << 10
FETCH_BYTES_MAX = 4 << 20
"""What one response to a consumer may have, beyond the one batch that is always sent: some milliseconds of reading."""


class Turns:
    def __init__(self, soon: Callable[[Callable[[], None]], None], now_ns: Callable[[], int]) -> None:
        """`soon` runs an action in the next step of the loop, after which the loop looks at its sockets."""
        self._soon = soon
        self._now_ns = now_ns
        self._waiting: deque[Callable[[], None]] = deque()
        self._waiting_for_little: deque[Callable[[], None]] = deque()
        self._is_a_turn = False
        # Whether `_next` is on its way, or runs.
        self._goes_on = False
        # None: in this step no connection has had many requests yet.
        self._step_began_ns: int | None = None
        # When requests that can wait began to come one upon the other, and when the last one came.
        self._rush_began_ns = self._rush_ns = NEVER

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting) + len(self._waiting_for_little)

    def wait(self, action: Callable[[], None], *, is_little: bool = False) -> None:
        """Runs `action` when all that wait already have had their turn; if it `is_little`, those with little. Who has
        used up a turn, and waits for one more, has not."""
        (self._waiting_for_little if is_little and not self._is_a_turn else self._waiting).append(action)
        if not self._goes_on:
            self._goes_on = True
            self._soon(self._next)

    def is_over(self, began_ns: int, now_ns: int) -> bool:
        """Whether a connection that has begun to handle requests at `began_ns` shall leave the rest for later."""
        if self._step_began_ns is None:
            self._step_began_ns = began_ns
            self._soon(self._end_step)
        return now_ns - self._step_began_ns >= TURN_NS

    def is_crowded(self, now_ns: int, *, in_rushes: bool) -> bool:
        """Whether a request that can wait has to. Where requests of its kind come `in_rushes`, it does when they have
        come one upon the other for longer than a turn: that asks the loop for nothing, as most of them come alone. Of
        another kind it does when the turns of this step are over."""
        if not in_rushes:
            return self.is_over(now_ns, now_ns)
        pause_ns, self._rush_ns = now_ns - self._rush_ns, now_ns
        if pause_ns > PAUSE_NS:
            self._rush_began_ns = now_ns
            return False
        return now_ns - self._rush_began_ns >= TURN_NS

    def _end_step(self) -> None:
        self._step_began_ns = None

    def _next(self) -> None:
        try:
            self._serve(self._waiting_for_little)
            self._serve(self._waiting)
        finally:
            self._is_a_turn = False
            self._goes_on = len(self) > 0
            if self._goes_on:
                self._soon(self._next)

    def _serve(self, waiting: deque[Callable[[], None]]) -> None:
        began_ns = self._now_ns()
        while waiting:
            # What others have done in this step does not shorten a turn that was waited for.
            self._end_step()
            self._rush_ns = NEVER
            self._is_a_turn = True
            waiting.popleft()()
            if self._is_used_up(began_ns):
                break

    def _is_used_up(self, began_ns: int) -> bool:
        """Whether the turns since `began_ns` are enough for one step."""
        return self._now_ns() - began_ns >= TURN_NS


class ReadTurns(Turns):
    """The turns of fetches: one in each step."""

    def __init__(self, soon: Callable[[Callable[[], None]], None], now_ns: Callable[[], int]) -> None:
        super().__init__(soon, now_ns)
        # In this step of the loop, and what little was read in the steps before it.
        self._read_bytes = 0
        self._is_to_begin = False

    def count_read(self, partitions: int, size_bytes: int) -> None:
        """So much of so many partitions was read for a response in this step."""
        self._read_bytes += READ_COST_BYTES + partitions * PARTITION_COST_BYTES + size_bytes
        # Not with the first of a step: most steps read little, and that would be one more action of the loop for each.
        if self._read_bytes >= LITTLE_READ_BYTES and not self._is_to_begin:
            self._is_to_begin = True
            self._soon(self._begin_step)

    @property
    def may_read(self) -> bool:
        """Whether a fetch may read at once, or has to wait."""
        return self._read_bytes < READ_BYTES_PER_STEP and not self._waiting

    def _is_used_up(self, began_ns: int) -> bool:  # noqa: ARG002 - what a turn may read fills a step
        return True

    def _begin_step(self) -> None:
        self._read_bytes = 0
        self._is_to_begin = False

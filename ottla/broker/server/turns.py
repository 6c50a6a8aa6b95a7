"""Turns: how the loop stays open to all when some clients ask for more than it can give at once.

A step of the loop handles what has arrived on each connection. Little would arrive on most, but one read can bring
forty thousand small requests, and a fetch can ask for fifty megabytes; a hundred clients that do so at the same time
would keep all others waiting for seconds. So the work of a step is bounded, and what exceeds it waits for its turn:

- when the requests of a step have taken `TURN_NS`, each connection handles a few more of its own, which is all that
  most of them have, and then reads nothing (`Connection`);
- fetches that have read `READ_BYTES_PER_STEP` between them let no further fetch read in this step (`DelayedFetch`).

Those that wait are served in the order of their arrival, one in each step of the loop. Between two of them the loop
takes up what other connections have sent in the meantime: a client that asks for little waits for one turn, and not for
all that are before it.
"""

from collections import deque
from collections.abc import Callable

TURN_NS = 2_000_000
# How often a connection looks whether its turn is over; it handles as many requests at least, or one that is long.
REQUESTS_PER_LOOK = 4
LONG_REQUEST = 4096
READ_BYTES_PER_STEP = 1 << 20
LITTLE_READ_BYTES = READ_BYTES_PER_STEP // 2
# What a fetch costs even if there is nothing to read, for itself and for each partition, as bytes that are read in the
# same time: some fifty fetches of one partition fit into a step, or four of sixty-four, which is `TURN_NS` either way.
READ_COST_BYTES = 16 << 10
PARTITION_COST_BYTES = 4 << 10
FETCH_BYTES_MAX = 8 << 20
"""What one response to a consumer may have, beyond the one batch that is always sent: some milliseconds of reading."""


class Turns:
    def __init__(self, soon: Callable[[Callable[[], None]], None]) -> None:
        """`soon` runs an action in the next step of the loop, after which the loop looks at its sockets."""
        self._soon = soon
        self._waiting: deque[Callable[[], None]] = deque()
        # None: in this step no connection has had many requests yet.
        self._step_began_ns: int | None = None

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def wait(self, action: Callable[[], None]) -> None:
        """Runs `action` when all that wait already have had their turn."""
        self._waiting.append(action)
        if len(self._waiting) == 1:
            self._soon(self._next)

    def is_over(self, began_ns: int, now_ns: int) -> bool:
        """Whether a connection that has begun to handle requests at `began_ns` shall leave the rest for later."""
        if self._step_began_ns is None:
            self._step_began_ns = began_ns
            self._soon(self._end_step)
        return now_ns - self._step_began_ns >= TURN_NS

    def _end_step(self) -> None:
        self._step_began_ns = None

    def _next(self) -> None:
        # What others have done in this step does not shorten a turn that was waited for.
        self._end_step()
        action = self._waiting.popleft()
        if self._waiting:
            # First, for the action may fail.
            self._soon(self._next)
        action()


class ReadTurns(Turns):
    """The turns of fetches."""

    def __init__(self, soon: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(soon)
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

    def _begin_step(self) -> None:
        self._read_bytes = 0
        self._is_to_begin = False

"""Rounds: a job that is done for each log from time to time, for a few logs in each step of the loop.

A broker may have ten thousand logs, and a look at one takes some microseconds. The first logs are looked at where the
round begins: that is all of them on most brokers.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from ottla.broker.runtime import Runtime
from ottla.replication.partition import Partition

# One step looks at so many at most, and begins no more after so long: a disk may be slow.
LOGS_AT_ONCE = 256
STEP_MS = 2


class HeldPartitions(Protocol):
    """Those of this broker, which come and go."""

    def __iter__(self) -> Iterator[Partition]: ...

    def find(self, topic: str, index: int) -> Partition | None: ...


class LogRounds:
    """The rounds of one job."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: HeldPartitions,
        job: Callable[[Partition], None],
        failed: Callable[[Partition, Exception], None],
    ) -> None:
        """`failed` is called with what `job` has raised; the round goes on with the next partition."""
        self._runtime = runtime
        self._partitions = partitions
        self._job = job
        self._failed = failed
        # Of the round that is under way.
        self._waiting: deque[Partition] = deque()

    def begin(self) -> None:
        """A round over all that are here now. One that is under way goes on alone: it is late already."""
        if not self._waiting:
            self._waiting.extend(self._partitions)
            self._step()

    def stop(self) -> None:
        """The rest of the round that is under way is left out."""
        self._waiting.clear()

    def _step(self) -> None:
        deadline_ms = self._runtime.clock.now_ms() + STEP_MS
        for _ in range(min(len(self._waiting), LOGS_AT_ONCE)):
            partition = self._waiting.popleft()
            # It may have been deleted since the round began.
            if self._partitions.find(partition.topic, partition.index) is partition:
                try:
                    self._job(partition)
                except Exception as error:
                    self._failed(partition, error)
            if self._runtime.clock.now_ms() >= deadline_ms:
                break
        if self._waiting:
            self._runtime.soon(self._step)

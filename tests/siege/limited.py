"""`python -m tests.siege.limited LIMIT_MIB COUNTS_FILE PYTHON -m ottla serve …`: `ottla serve` with a limit of memory.

The limit is RLIMIT_DATA: all private writable memory that the process asks the kernel for, its heap, its mappings and
its threads' stacks, touched or not. Beyond it an allocation fails (MemoryError). RLIMIT_AS would count the text of
libraries and address space that the allocator only reserves; a cgroup would count the page cache of the logs, and needs
rights. What the process really occupies is read from outside, in /proc.

SIGUSR2 makes the process write to COUNTS_FILE how many of everything it holds, and how long the longest step of its
loop was since the last time; SIGUSR1 also how much memory is in use, which takes a step of its own. That is all that
differs from `ottla`.
"""

import asyncio
import json
import resource
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from ottla.broker.broker import Broker
from ottla.cli.main import main
from tests.siege.memory_in_use import IN_USE, bytes_in_use

# What threads get as a stack, which counts whole. The usual 8 MiB for each of them would be a limit of threads.
STACK_BYTES = 1 << 20
LOOK_EVERY_S = 0.002
LONGEST_STEP = "longest step"
"""In milliseconds."""


class LoopMeter:
    """How long the loop was at work between two looks at its timers, at most: in processor time, which says the same on
    a machine that has more to do."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._last_s = 0.0
        self._longest_s = 0.0
        loop.call_soon(self._look)

    def take_longest_ms(self) -> int:
        longest_s, self._longest_s = self._longest_s, 0.0
        return int(longest_s * 1000)

    def leave_out(self) -> None:
        """The step that runs now is not the broker's."""
        self._last_s = time.thread_time()

    def _look(self) -> None:
        now_s = time.thread_time()
        if self._last_s:
            self._longest_s = max(self._longest_s, now_s - self._last_s)
        self._last_s = now_s
        self._loop.call_later(LOOK_EVERY_S, self._look)


def counts(broker: Broker) -> dict[str, int]:
    """How many of everything the broker holds for its clients."""
    # Only looked at: the loaders would import the coordinators in this step.
    shards = broker.parts.group_loader.loaded_shards()
    groups = [group for shard in shards for group in shard.groups.values()]
    return {
        "connections": len(broker.server.connections),
        "unauthenticated connections": len(broker.server.logins),
        "held bytes": broker.server.memory.held_bytes,
        "parked fetches": len(broker.replicas.delayed_fetch),
        "fetch sessions": len(broker.fetch_sessions),
        "groups": len(groups),
        "members": sum(
            len(group.members) + len(group.pending_members) for shard in shards for group in shard.groups.values()
        ),
        "topics": len(broker.image.topics),
        "transactional ids": sum(len(shard.entries) for shard in broker.parts.transaction_loader.loaded_shards()),
        "timers": len(broker.runtime.wheel),
    }


def write_counts(broker: Broker, meter: LoopMeter, path: Path, *, is_memory_counted: bool) -> None:
    aside = path.with_suffix(".tmp")
    longest_ms = meter.take_longest_ms()
    in_use = {IN_USE: bytes_in_use()} if is_memory_counted else {}
    aside.write_text(json.dumps({**counts(broker), LONGEST_STEP: longest_ms, **in_use}))
    aside.rename(path)
    meter.leave_out()


def _counting(start: Callable[[Broker], Awaitable[None]], path: Path) -> Callable[[Broker], Awaitable[None]]:
    async def start_and_listen(broker: Broker) -> None:
        await start(broker)
        loop = broker.runtime.loop
        write = partial(write_counts, broker, LoopMeter(loop), path)
        loop.add_signal_handler(signal.SIGUSR2, partial(write, is_memory_counted=False))
        loop.add_signal_handler(signal.SIGUSR1, partial(write, is_memory_counted=True))

    return start_and_listen


def _main() -> None:
    limit_mib, counts_file, *command = sys.argv[1:]
    limit_bytes = int(limit_mib) << 20
    threading.stack_size(STACK_BYTES)
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    Broker.start = _counting(Broker.start, Path(counts_file))  # type: ignore[method-assign]
    sys.argv = command[2:]
    main()


if __name__ == "__main__":
    _main()

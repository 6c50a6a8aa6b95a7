"""What every part of a broker gets, and nothing more: its configuration, time, chance and log, and how things run.

Everything enters from the loop: bytes of a connection, a timer, the end of work in a thread. Each of these is an event
and ends with `end_event`, which writes what was appended during the event and notifies those who wait for it. Nothing
else runs in between, so the parts of a broker call each other plainly.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from random import Random
from typing import Any, Protocol, TypeVar

from ottla.broker.config.server import ServerConfig
from ottla.broker.logging import LazyLog
from ottla.broker.loop_wheel import LoopWheel
from ottla.timer.clock import Clock
from ottla.timer.wheel import TimingWheel

T = TypeVar("T")


class StartError(Exception):
    """The broker cannot start: one sentence for the user."""


class Runtime(Protocol):
    """A test can hand in one of its own."""

    @property
    def config(self) -> ServerConfig: ...

    @property
    def node_id(self) -> int: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def wheel(self) -> TimingWheel: ...

    @property
    def rng(self) -> Random: ...

    @property
    def log(self) -> LazyLog: ...

    @property
    def is_serving(self) -> bool:
        """Between start and stop of the broker."""
        ...

    def schedule(self, wait_ms: int, action: Callable[[], None]) -> Any:
        """Runs `action` as an event after `wait_ms`; gives the entry of the wheel, to cancel it."""
        ...

    def soon(self, action: Callable[[], None]) -> None:
        """Runs `action` as an event of its own."""
        ...

    def offload(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Runs `work` in a thread, then `done` as an event. What `work` raises is logged."""
        ...

    async def in_thread(self, work: Callable[[], T]) -> T:
        """What `work`, run in a thread, gives or raises. For start and stop: it ends in no event."""
        ...

    def start_task(self, coroutine: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        """A task of the broker's loop. The caller owns it."""
        ...

    def guard(self, action: Callable[..., object], *arguments: object) -> None:
        """Runs `action`; what it raises is logged and does not reach the caller."""
        ...

    def end_event(self) -> None:
        """Writes what was appended in this event, and notifies all who wait for something that happened in it."""
        ...


class LoopRuntime:
    """The runtime of a broker on an asyncio loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: ServerConfig,
        *,
        node_id: int,
        clock: Clock,
        rng: Random,
        log: LazyLog,
        executor: Executor | None,
    ) -> None:
        self.config = config
        self.node_id = node_id
        self.clock = clock
        self.rng = rng
        self.log = log
        self.is_serving = False
        self.loop = loop
        self.wheel = LoopWheel(loop, clock, lambda: self.end_event(), self._report)
        self._executor = executor
        # Until the parts have been made, nothing is appended.
        self.end_event: Callable[[], None] = lambda: None
        self._works_under_way = 0
        self._idle: asyncio.Future[None] | None = None

    def at_end_of_event(self, action: Callable[[], None]) -> None:
        """What `end_event` does; set once, when the parts have been made."""
        self.end_event = action

    def schedule(self, wait_ms: int, action: Callable[[], None]) -> Any:
        return self.wheel.schedule(self.clock.now_ms() + wait_ms, action)

    def soon(self, action: Callable[[], None]) -> None:
        self.loop.call_soon(self._run, action)

    def offload(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self._works_under_way += 1
        future = self.loop.run_in_executor(self._executor, work)
        future.add_done_callback(lambda finished: self._finish_work(finished, done))

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await self.loop.run_in_executor(self._executor, work)

    def start_task(self, coroutine: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        return self.loop.create_task(coroutine, name=name)

    def guard(self, action: Callable[..., object], *arguments: object) -> None:
        try:
            action(*arguments)
        except Exception as error:
            self._report(error)

    async def work_done(self) -> None:
        """Until no work is under way in a thread."""
        while self._works_under_way:
            if self._idle is None:
                self._idle = self.loop.create_future()
            await self._idle

    def stop(self) -> None:
        """No timer runs any more."""
        self.wheel.stop()

    def _finish_work(self, finished: "asyncio.Future[None]", done: Callable[[], None]) -> None:
        self._works_under_way -= 1
        error = None if finished.cancelled() else finished.exception()
        if isinstance(error, Exception):
            self._report(error)
        self._run(done)
        if not self._works_under_way and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def _run(self, action: Callable[[], None]) -> None:
        self.guard(action)
        self.end_event()

    def _report(self, error: Exception) -> None:
        self.log.error("unhandled error", exc_info=error)

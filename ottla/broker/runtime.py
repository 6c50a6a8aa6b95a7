"""What every part of a broker gets, and nothing more: its configuration, time, chance and log, and how things run.

Everything enters from the loop: bytes of a connection, a timer, the end of work in a thread. Each of these is an event
and ends with `end_event`, which writes what was appended during the event and notifies those who wait for it. Nothing
else runs in between, so the parts of a broker call each other plainly.

What waits is a coroutine (`spawn`): each of its steps, from one wait to the next, is an event as well. What it read
before a wait may be old behind it.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from concurrent.futures import Executor
from itertools import islice
from random import Random
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from ottla.broker.config.server import ServerConfig
from ottla.broker.logging import LazyLog
from ottla.broker.loop_wheel import LoopWheel, TransportLoginClock
from ottla.storage.recovery import RecoveryProgress
from ottla.timer.clock import Clock, LoginClock, TimerKind
from ottla.timer.wheel import TimingWheel

S = TypeVar("S")
T = TypeVar("T")

# What a command does for each topic or partition of a long list takes some 10 µs: some milliseconds for so many.
ITEMS_PER_SLICE = 256
# A request of so many bytes names about as many partitions as a slice has.
ONE_SLICE_BYTES = 4096


class StartError(Exception):
    """The broker cannot start: one sentence for the user."""


class Runtime(Protocol):
    """A test can hand in one of its own."""

    @property
    def config(self) -> ServerConfig: ...

    @property
    def node_id(self) -> int: ...

    @property
    def clock(self) -> Clock:
        """Transport time (`ottla.timer.clock`)."""
        ...

    @property
    def wheel(self) -> TimingWheel:
        """Of timers in transport time."""
        ...

    @property
    def broker_clock(self) -> Clock:
        """Broker time, and the source of every timestamp. In production it is `clock`."""
        ...

    @property
    def broker_wheel(self) -> TimingWheel:
        """Of timers in broker time. In production it is `wheel`."""
        ...

    @property
    def login_clock(self) -> LoginClock:
        """By which tokens and the sessions of logins end. In production it is `clock`."""
        ...

    @property
    def lag_clock(self) -> Clock:
        """By which followers are in sync. In production it is `clock`."""
        ...

    @property
    def rng(self) -> Random: ...

    @property
    def random_bytes(self) -> Callable[[int], bytes]:
        """So many bytes that no attacker can guess, for secrets; `rng` is for all else."""
        ...

    @property
    def log(self) -> LazyLog: ...

    @property
    def is_serving(self) -> bool:
        """Between start and stop of the broker."""
        ...

    def schedule(self, wait_ms: int, action: Callable[[], None], kind: TimerKind = TimerKind.TRANSPORT) -> Any:
        """Runs `action` as an event after `wait_ms` of the time that the kind belongs to; gives the entry of the wheel,
        to cancel it."""
        ...

    def soon(self, action: Callable[[], None]) -> None:
        """Runs `action` as an event of its own."""
        ...

    def offload(self, work: Callable[[], None], done: Callable[[], None], *, may_last: bool = False) -> None:
        """Runs `work` in a thread, then `done` as an event. What `work` raises is logged. Work that `may_last` is no
        sign of a disk that does not answer."""
        ...

    async def in_thread(self, work: Callable[[], T]) -> T:
        """What `work`, run in a thread, gives or raises."""
        ...

    def start_task(self, coroutine: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        """A task of the broker's loop. The caller owns it."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        """A task whose steps are events. It begins with the next step of the loop; what it raises is logged; the end
        of the broker cancels it."""
        ...

    async def sleep(self, wait_ms: int) -> None: ...

    def guard(self, action: Callable[..., object], *arguments: object) -> None:
        """Runs `action`; what it raises is logged and does not reach the caller."""
        ...

    def report(self, error: Exception) -> None:
        """Logs what an action has raised."""
        ...

    def end_event(self) -> None:
        """Writes what was appended in this event, and notifies all who wait for something that happened in it."""
        ...


class BrokerTime(NamedTuple):
    clock: Clock
    wheel: LoopWheel
    login_clock: LoginClock
    lag_clock: Clock


NewBrokerTime: TypeAlias = Callable[["LoopRuntime"], BrokerTime]
"""Makes the broker time of one broker that starts: a test's."""


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
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        new_broker_time: NewBrokerTime | None = None,
    ) -> None:
        """Without `new_broker_time`, both times are the one of `clock`."""
        self.config = config
        self.node_id = node_id
        self.clock = clock
        self.rng = rng
        self.random_bytes = random_bytes
        self.log = log
        self.is_serving = False
        self.loop = loop
        self.wheel = LoopWheel(loop, clock, lambda: self.end_event(), self.report)
        if new_broker_time is None:
            broker_time = BrokerTime(clock, self.wheel, TransportLoginClock(clock), clock)
        else:
            broker_time = new_broker_time(self)
        self.broker_clock, self.broker_wheel, self.login_clock, self.lag_clock = broker_time
        self._executor = executor
        self._is_stopped = False
        # Until the parts have been made, nothing is appended.
        self.end_event: Callable[[], None] = _nothing
        # In the order in which they began, each with the moment; None for one that may last.
        self._works: dict[asyncio.Future[Any], int | None] = {}
        self._idle: asyncio.Future[None] | None = None
        self.unhandled_errors = 0
        self.recovery = RecoveryProgress()
        """Of the data directory, while it is opened."""
        # In the order in which they began.
        self._spawned: dict[asyncio.Task[Any], None] = {}
        self._none_spawned: asyncio.Future[None] | None = None

    def at_end_of_event(self, action: Callable[[], None]) -> None:
        """What `end_event` does; set once, when the parts have been made."""
        self.end_event = action

    def schedule(self, wait_ms: int, action: Callable[[], None], kind: TimerKind = TimerKind.TRANSPORT) -> Any:
        if kind is TimerKind.TRANSPORT:
            return self.wheel.schedule(self.clock.now_ms() + wait_ms, action)
        return self.broker_wheel.schedule(self.broker_clock.now_ms() + wait_ms, action, kind)

    def soon(self, action: Callable[[], None]) -> None:
        self.loop.call_soon(self._run, action)

    def offload(self, work: Callable[[], None], done: Callable[[], None], *, may_last: bool = False) -> None:
        if self._is_stopped:
            # The end of other work has asked for it; the threads may be gone.
            return
        future = self.loop.run_in_executor(self._executor, work)
        self._works[future] = None if may_last else self.clock.now_ms()
        future.add_done_callback(lambda finished: self._finish_work(finished, done))

    async def in_thread(self, work: Callable[[], T]) -> T:
        future = self.loop.run_in_executor(self._executor, work)
        self._works[future] = self.clock.now_ms()
        future.add_done_callback(self._count_work)
        # A caller that is cancelled leaves the thread at work.
        return await asyncio.shield(future)

    def start_task(self, coroutine: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        return self.loop.create_task(coroutine, name=name)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        task = self.loop.create_task(EventSteps(self, coroutine), name=name)
        self._spawned[task] = None
        task.add_done_callback(self._finish_task)
        return task

    async def sleep(self, wait_ms: int) -> None:
        slept: asyncio.Future[None] = self.loop.create_future()
        timer = self.schedule(wait_ms, lambda: complete(slept, None))
        try:
            await slept
        finally:
            timer.cancel()

    def guard(self, action: Callable[..., object], *arguments: object) -> None:
        try:
            action(*arguments)
        except Exception as error:
            self.report(error)

    async def work_done(self) -> None:
        """Until no work is under way in a thread."""
        while self._works:
            if self._idle is None:
                self._idle = self.loop.create_future()
            await self._idle

    @property
    def works_under_way(self) -> int:
        """How many calls run in threads, or wait for one."""
        return len(self._works)

    @property
    def oldest_work_ms(self) -> int:
        """How long the oldest call in a thread has taken so far, beside those that may last."""
        began_ms = next((began_ms for began_ms in self._works.values() if began_ms is not None), None)
        return 0 if began_ms is None else self.clock.now_ms() - began_ms

    async def cancel_spawned(self) -> None:
        """Returns when no spawned task is left."""
        for task in self._spawned:
            task.cancel()
        if self._spawned:
            self._none_spawned = self.loop.create_future()
            await self._none_spawned

    def stop(self) -> None:
        """No timer runs any more, no spawned task, and no work begins in a thread."""
        self._is_stopped = True
        self.wheel.stop()
        self.broker_wheel.stop()
        self.end_event = _nothing
        for task in self._spawned:
            task.cancel()

    def _finish_task(self, task: "asyncio.Task[Any]") -> None:
        del self._spawned[task]
        if not self._spawned and self._none_spawned is not None:
            complete(self._none_spawned, None)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.report(error)

    def _finish_work(self, finished: "asyncio.Future[None]", done: Callable[[], None]) -> None:
        error = None if finished.cancelled() else finished.exception()
        if isinstance(error, Exception):
            self.report(error)
        self._run(done)
        self._count_work(finished)

    def _count_work(self, finished: "asyncio.Future[Any]") -> None:
        if not finished.cancelled():
            # It is raised where the work is waited for, if it still is.
            finished.exception()
        self._works.pop(finished, None)
        if not self._works and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def _run(self, action: Callable[[], None]) -> None:
        self.guard(action)
        self.end_event()

    def report(self, error: Exception) -> None:
        """Logs what an action has raised."""
        self.unhandled_errors += 1
        self.log.error("unhandled error", exc_info=error)


class TimeLimit:
    """`with TimeLimit(runtime, timeout_ms):` raises TimeoutError from the wait in its body that lasts too long.

    It keeps the time of the broker's wheel, whose timers of one moment have an order."""

    def __init__(self, runtime: Runtime, timeout_ms: int) -> None:
        self._runtime = runtime
        self._timeout_ms = max(timeout_ms, 0)
        self._is_over = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "a time limit is for coroutines of a task"
        self._task = task
        self._timer = self._runtime.schedule(self._timeout_ms, self._end)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        # One that was cancelled by others too stays cancelled.
        if self._is_over and not self._task.uncancel() and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _end(self) -> None:
        self._is_over = True
        self._task.cancel()


async def next_step() -> None:
    """Lets the loop serve others first."""
    await asyncio.sleep(0)


async def in_slices(work: Callable[[S], T], items: Iterable[S], *, at_once: int = ITEMS_PER_SLICE) -> list[T]:
    """What `work` gives for each item, `at_once` of them in a step. `items` must not change until it is done."""
    results: list[T] = []
    for item in items:
        if results and len(results) % at_once == 0:
            await next_step()
        results.append(work(item))
    return results


async def in_slices_by_topic(
    work: Callable[[str, S], T], topics: Iterable[tuple[str, Sequence[S]]]
) -> list[tuple[str, list[T]]]:
    """What `work` gives for the name of a topic and each of its partitions, as many of all topics in a step as
    `in_slices` has."""
    known = list(topics)
    named = ((name, each) for name, partitions in known for each in partitions)
    results = iter(await in_slices(lambda pair: work(*pair), named))
    return [(name, list(islice(results, len(partitions)))) for name, partitions in known]


def now_or_later(coroutine: Coroutine[Any, Any, T], items: int) -> T | Coroutine[Any, Any, T]:
    """What a coroutine returns that works on so many items `in_slices`, if that is one slice; else the coroutine, for a
    task."""
    if items > ITEMS_PER_SLICE:
        return coroutine
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    raise AssertionError(f"{coroutine} waits for another step")


def complete(future: "asyncio.Future[T]", result: T) -> None:
    """Unless it was cancelled, or has a result."""
    if not future.done():
        future.set_result(result)


class EventSteps(Coroutine[Any, Any, Any]):
    """A coroutine for a task, which ends an event after each of its steps."""

    def __init__(self, runtime: LoopRuntime, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._runtime = runtime
        self.coroutine = coroutine

    def send(self, value: Any) -> Any:
        try:
            return self.coroutine.send(value)
        finally:
            self._runtime.end_event()

    def throw(self, *error: Any) -> Any:
        try:
            return self.coroutine.throw(*error)
        finally:
            self._runtime.end_event()

    def close(self) -> None:
        self.coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.coroutine.__await__()


def _nothing() -> None:
    pass

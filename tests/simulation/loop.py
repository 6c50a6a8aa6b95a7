"""An event loop in virtual time: nothing sleeps, nothing waits for a socket, no thread runs.

When there is nothing to run, the clock moves to the next timer. Timers of one moment run in the order in which they
were set, which asyncio's own loops do not promise. Time is whole microseconds inside, so that two ways of computing
one moment come to the same number. What is not defined here, `AbstractEventLoop` refuses.

Every callback belongs to the *process* in whose context it was scheduled. `kill` ends a process as `kill -9` does:
none of its callbacks and tasks runs ever again, and no `finally` of it says goodbye. `pause` and `resume` are SIGSTOP
and SIGCONT: what becomes ready while it is stopped runs afterwards.

What is given to an executor runs as one callback, or with `Suspensions` in parts, as beside a thread (`offloaded.py`).
"""

import asyncio
import contextvars
import inspect
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from typing import Any

from tests.simulation.offloaded import OffloadedWork, Suspensions, current_work

PROCESS: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("simulated process", default=None)


class Process:
    """Something that can be killed or stopped as a whole."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.when_killed: list[Callable[[], None]] = []
        # What has become ready while the process was stopped; None while it runs.
        self.held_back: list[Callback] | None = None
        # What a dead process leaves half done is kept: a coroutine that is collected would run its `finally`.
        self.tasks: list[asyncio.Task[Any]] = []

    @property
    def is_paused(self) -> bool:
        return self.held_back is not None

    def context(self) -> contextvars.Context:
        context = contextvars.copy_context()
        context.run(PROCESS.set, self)
        return context


class Crash(KeyboardInterrupt):
    """Ends the running process in the middle of what it does. asyncio lets only interrupts through to the loop."""


class Callback(asyncio.TimerHandle):
    """What the loop has to run, and for which process. It is made and run once for every step, so it does itself what
    asyncio's handles leave to their base class and to a loop that may be debugged."""

    __slots__ = ("arguments", "function", "process", "when_us")

    def __init__(  # pyright: ignore[reportMissingSuperCall]
        self,
        function: Callable[..., object] | None,
        arguments: tuple[Any, ...],
        context: contextvars.Context,
        when_us: int,
    ) -> None:
        # None when it was cancelled.
        self.function = function
        self.arguments = arguments
        self.process: Process | None = context.get(PROCESS)
        self.when_us = when_us
        self._context = context

    def cancel(self) -> None:
        self.function = None
        self.arguments = ()

    def cancelled(self) -> bool:
        return self.function is None

    def when(self) -> float:
        return self.when_us / 1_000_000

    def __repr__(self) -> str:
        return f"<Callback {self.function!r} of {self.process}>"


class NothingLeftToDo(Exception):
    """The run waits for something that no callback and no timer will ever bring about."""


class VirtualClock:
    """`ottla.timer.clock.Clock` in the time of a loop. `wall_start_ms` may be moved: the wall clock jumps then."""

    def __init__(self, loop: "SimulationLoop", wall_start_ms: int = 1_700_000_000_000) -> None:
        self._loop = loop
        self.wall_start_ms = wall_start_ms

    def now_ms(self) -> int:
        return self._loop.now_us // 1000

    def now_ns(self) -> int:
        return self._loop.now_us * 1000

    def wall_ms(self) -> int:
        return self.wall_start_ms + self._loop.now_us // 1000


class SimulationLoop(asyncio.AbstractEventLoop):
    def __init__(
        self,
        executor_delay_us: Callable[[], int] = lambda: 0,
        start_us: int = 1_000_000,
        executor_return_us: Callable[[], int] | None = None,
        suspensions: Suspensions | None = None,
    ) -> None:
        self.now_us = start_us
        # Called after every callback, with the process it belonged to.
        self.after_step: Callable[[Process | None], None] | None = None
        # What callbacks raised and tasks left unretrieved; the caller judges.
        self.failures: list[dict[str, Any]] = []
        # Called with the process in which `Crash` was raised.
        self.on_crash: Callable[[Process], None] | None = None
        self.steps = 0
        self._executor_delay_us = executor_delay_us
        self._executor_return_us = executor_return_us
        self._suspensions = suspensions if suspensions is not None and suspensions.are_drawn else None
        # Offloaded work that has begun and not ended, and whose it is.
        self._works: dict[OffloadedWork, Process | None] = {}
        self._ready: deque[Callback] = deque()
        self._scheduled: list[tuple[int, int, Callback]] = []
        self._timers_set = 0
        self._stopping = False
        self._closed = False

    # Running.

    def run_until_complete(self, future: Any) -> Any:
        task = asyncio.ensure_future(future, loop=self)
        with _Running(self):
            while not task.done():
                if not self._step():
                    raise NothingLeftToDo(f"after {self.steps} steps, at {self.now_us} µs, waiting for {task!r}")
        return task.result()

    def run_forever(self) -> None:
        """Until `stop`, or until there is nothing left to do."""
        self._stopping = False
        with _Running(self):
            while not self._stopping and self._step():
                pass

    def stop(self) -> None:
        self._stopping = True

    def pause(self, process: Process) -> None:
        if process.held_back is None:
            process.held_back = []

    def resume(self, process: Process) -> None:
        if process.held_back is not None:
            self._ready.extend(process.held_back)
            process.held_back = None

    def kill(self, process: Process) -> None:
        process.alive = False
        process.held_back = None
        for action in process.when_killed:
            action()
        for work in [work for work, its_process in self._works.items() if its_process is process]:
            work.abandon()
        # A dead task must not warn that its loop forgot it.
        for task in process.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _close_if_not_begun(task)

    def _step(self) -> bool:
        """Runs one callback; False if there is none and never will be."""
        ready = self._ready
        while True:
            if not ready and not self._pass_time():
                return False
            callback = ready.popleft()
            function, process = callback.function, callback.process
            if function is None:
                continue
            if process is None:
                break
            if process.held_back is not None:
                process.held_back.append(callback)
            elif process.alive:
                break
        try:
            callback._context.run(function, *callback.arguments)
        except Crash:
            assert process is not None, "only a process can crash"
            assert self.on_crash is not None, "no handler for a crash"
            self.on_crash(process)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            message = f"Exception in callback {getattr(function, '__qualname__', function)}"
            self.call_exception_handler({"message": message, "exception": error, "handle": callback})
        self.steps += 1
        if self.after_step is not None:
            self.after_step(process)
        return True

    def _pass_time(self) -> bool:
        """Moves to the next moment for which a timer is set, and makes all timers of that moment ready."""
        scheduled = self._scheduled
        while scheduled and scheduled[0][2].function is None:
            heappop(scheduled)
        if not scheduled:
            return False
        moment_us = scheduled[0][0]
        if moment_us > self.now_us:
            self.now_us = moment_us
        else:
            moment_us = self.now_us
        ready = self._ready
        while scheduled and scheduled[0][0] <= moment_us:
            ready.append(heappop(scheduled)[2])
        return True

    # Scheduling.

    def time(self) -> float:
        return self.now_us / 1_000_000

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if self._works:
            _check_is_of_the_loop()
        handle = Callback(callback, args, contextvars.copy_context() if context is None else context, self.now_us)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = Callback(callback, args, contextvars.copy_context() if context is None else context, self.now_us)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        _check_is_of_the_loop()
        return self.call_at_us(self.now_us + round(delay * 1_000_000), callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        _check_is_of_the_loop()
        return self.call_at_us(round(when * 1_000_000), callback, *args, context=context)

    def call_at_us(
        self, when_us: int, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = Callback(callback, args, contextvars.copy_context() if context is None else context, when_us)
        self._timers_set += 1
        heappush(self._scheduled, (when_us, self._timers_set, handle))
        return handle

    # Futures, tasks, "threads".

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        _check_is_of_the_loop()
        if context is None:
            context = contextvars.copy_context()
        # Task names that asyncio makes up count all tasks of the interpreter.
        task = asyncio.Task(coro, loop=self, name=name or coro.__qualname__, context=context)
        process = context.get(PROCESS)
        if process is not None:
            process.tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """`func` runs by itself at some later moment, as a callback or in parts. What it returns arrives with its end,
        or another moment later where there is an `executor_return_us`: the loop goes on between the two, as beside a
        real thread."""
        future = self.create_future()

        def run() -> None:
            outcome: Any = None
            failure: Exception | None = None
            try:
                outcome = func(*args)
            except Exception as error:
                failure = error
            if self._executor_return_us is not None:
                self.call_at_us(self.now_us + self._executor_return_us(), finish, outcome, failure)
            elif current_work() is not None:
                self.call_soon_threadsafe(finish, outcome, failure)
            else:
                finish(outcome, failure)

        def finish(outcome: Any, failure: Exception | None) -> None:
            if future.cancelled():
                return
            if failure is None:
                future.set_result(outcome)
            else:
                future.set_exception(failure)

        def start() -> None:
            if future.cancelled():
                return
            if self._suspensions is None:
                run()
            else:
                self._start_work(run, self._suspensions)

        self.call_at_us(self.now_us + self._executor_delay_us(), start)
        return future

    def _start_work(self, run: Callable[[], None], suspensions: Suspensions) -> None:
        def run_and_forget() -> None:
            try:
                run()
            finally:
                self._works.pop(work, None)

        work = OffloadedWork(run_and_forget, suspensions.draw_us, self._call_later_us)
        self._works[work] = PROCESS.get()
        work.go_on()

    def _call_later_us(self, delay_us: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self.call_at_us(self.now_us + delay_us, callback)

    # What asyncio asks of a loop.

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        for work in list(self._works):
            work.abandon()
        for task in asyncio.all_tasks(self):
            _close_if_not_begun(task)
        self._ready.clear()
        self._scheduled.clear()

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        pass

    def get_task_factory(self) -> None:
        return None

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Crash):
            self.failures.append(context)

    async def shutdown_asyncgens(self) -> None:
        pass

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's own
        pass


class _Running:
    def __init__(self, loop: SimulationLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        assert asyncio._get_running_loop() is None, "another loop is running"
        asyncio._set_running_loop(self._loop)

    def __exit__(self, *_: object) -> None:
        asyncio._set_running_loop(None)


def _check_is_of_the_loop() -> None:
    """Of its methods, a thread may call one: `call_soon_threadsafe`."""
    assert current_work() is None, "offloaded work calls a method of the loop that is not for threads"


def _close_if_not_begun(task: "asyncio.Task[Any]") -> None:
    """What has not begun never will; its coroutine is closed, or Python would warn that it was never awaited."""
    # The coroutine of a task whose steps are events is one inside another.
    coroutine = getattr(task.get_coro(), "coroutine", task.get_coro())
    if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        coroutine.close()


def described(failure: dict[str, Any]) -> str:
    """One of `SimulationLoop.failures`."""
    error = failure.get("exception")
    shown = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else ""
    return f"{failure.get('message')}: {shown}"

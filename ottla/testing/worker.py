"""The event loop of brokers in a thread of its own, and how other threads and loops call into it.

A step on the loop is a plain function (`call`) or a coroutine (`run`, `wait`). A caller that is on the loop
already, such as the condition of a wait, calls plainly and cannot wait for a coroutine. A child that was forked has no
such thread: its calls are refused with a sentence.

`__tracebackhide__` keeps these frames out of pytest's tracebacks, which end where the test has called.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

FORKED = "this process was forked from the one that has the broker: connect clients to its bootstrap address instead"
IS_ON_LOOP = (
    "a condition looks and does not change anything, nor does an observer: "
    "this call has to wait for the broker, in which it runs"
)


class NotRunningError(Exception):
    """Something was asked of a broker or a cluster that does not run: one plain sentence."""


class BrokerLoop:
    def __init__(self) -> None:
        import uvloop

        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self.loop.run_forever, name="ottla", daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether the caller runs on the loop."""
        return threading.get_ident() == self._thread.ident

    @property
    def is_forked(self) -> bool:
        return os.getpid() != self._process

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """What `function`, run in a step of the loop, returns or raises. Raises NotRunningError in a forked child."""
        __tracebackhide__ = True
        if self.is_here and not self.is_forked:
            return function(*arguments)
        return self._begin(function, arguments).result()

    async def wait_for_call(self, function: Callable[..., T], *arguments: Any) -> T:
        """As `call`, for the coroutines of any loop of asyncio."""
        __tracebackhide__ = True
        return await asyncio.wrap_future(self._begin(function, arguments))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What a coroutine of the loop returns or raises. Raises NotRunningError in a forked child, and for a caller
        on the loop."""
        __tracebackhide__ = True
        future = self.submit(coroutine)
        try:
            return future.result()
        except TimeoutError as error:
            # Of a wait that is over, what the loop did is of no interest.
            raise error.with_traceback(None) from None

    async def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """As `run`, for the coroutines of any loop of asyncio."""
        __tracebackhide__ = True
        return await asyncio.wrap_future(self.submit(coroutine))

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        try:
            self._check()
            if self.is_here:
                raise NotRunningError(IS_ON_LOOP)
        except NotRunningError:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def stop(self) -> None:
        """Ends the loop and its thread; in a forked child there is none."""
        if self.is_forked:
            return
        asyncio.run_coroutine_threadsafe(self.loop.shutdown_default_executor(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def _begin(self, function: Callable[..., T], arguments: tuple[Any, ...]) -> "Future[T]":
        self._check()
        future: Future[T] = Future()
        self.loop.call_soon_threadsafe(_complete, future, function, arguments)
        return future

    def _check(self) -> None:
        if self.is_forked:
            raise NotRunningError(FORKED)
        if self.loop.is_closed():
            raise NotRunningError("the broker is not open any more")


def _complete(future: "Future[T]", function: Callable[..., T], arguments: tuple[Any, ...]) -> None:
    try:
        future.set_result(function(*arguments))
    except Exception as error:
        future.set_exception(error)

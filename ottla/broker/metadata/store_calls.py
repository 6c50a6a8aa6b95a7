"""Calls of the metadata store from coroutines, and how long to go on when it does not answer."""

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.broker.runtime import StartError
from ottla.timer.clock import Clock

RETRY_MS_MIN = 100
RETRY_MS_MAX = 3000


async def ask(method: Callable[..., None], *arguments: Any) -> Any:
    """What a method of the store answers. Does not give way to others where that comes within the call."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(result: Any) -> None:
        if not answered.done():
            answered.set_result(result)

    method(*arguments, answer)
    return await answered


class RetryDeadline:
    """The time between attempts, longer and longer; and whether there is still time for another."""

    def __init__(self, clock: Clock, at_most_ms: int | None) -> None:
        """None: there always is."""
        self._clock = clock
        self._until_ms = None if at_most_ms is None else clock.now_ms() + at_most_ms
        self._next_ms = RETRY_MS_MIN

    async def wait(self, why: str) -> None:
        """Until the next attempt. Raises StartError, which says why, when it was the last one."""
        now_ms = self._clock.now_ms()
        if self._until_ms is not None and now_ms >= self._until_ms:
            raise StartError(why)
        # Not on the wheel: the runtime has no end of an event yet when a broker starts.
        wait_s = self._next_ms / 1000
        self._next_ms = min(2 * self._next_ms, RETRY_MS_MAX)
        await asyncio.sleep(wait_s)

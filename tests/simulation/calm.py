"""The end of the storm: faults stop, and every sleeping task is woken.

`asyncio.wait_for` and `asyncio.gather` take other steps of the loop on other versions of Python, so that one seed would
be several stories. What is here takes the same ones on all.
"""

import asyncio
from collections.abc import Callable, Iterable

from tests.simulation.loop import SimulationLoop

POLL_MS = 100


class Calm:
    def __init__(self) -> None:
        self._has_come = False
        # In the order in which the sleeps began, which is that of the waking.
        self._sleepers: dict[asyncio.Future[None], None] = {}

    def is_set(self) -> bool:
        return self._has_come

    def set(self) -> None:
        self._has_come = True
        for sleeper in self._sleepers:
            _wake(sleeper)

    async def sleep_ms(self, duration_ms: int) -> None:
        """Calm ends every sleep that began before it."""
        if self._has_come:
            await asyncio.sleep(duration_ms / 1000)
            return
        loop = asyncio.get_running_loop()
        sleeper: asyncio.Future[None] = loop.create_future()
        self._sleepers[sleeper] = None
        timer = loop.call_later(duration_ms / 1000, _wake, sleeper)
        try:
            await sleeper
        finally:
            timer.cancel()
            del self._sleepers[sleeper]


def _wake(sleeper: "asyncio.Future[None]") -> None:
    if not sleeper.done():
        sleeper.set_result(None)


async def wait_for_all(tasks: "Iterable[asyncio.Task[None]]") -> None:
    """Raises what the first of them that has failed did raise."""
    for task in tuple(tasks):
        await task


async def wrong_after(at_most_ms: int, still_wrong: Callable[[], list[str]], *, rests_long: bool = False) -> list[str]:
    """Nothing, as soon as nothing is wrong. `rests_long`: all that time passes first, and everything goes on."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulationLoop), "only its time is exact"
    ends_us = loop.now_us + at_most_ms * 1000
    if rests_long:
        await asyncio.sleep(at_most_ms / 1000)
    while wrong := still_wrong():
        if loop.now_us >= ends_us:
            break
        await asyncio.sleep(POLL_MS / 1000)
    return wrong

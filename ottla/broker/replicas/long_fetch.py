"""One fetch request of a consumer about hundreds of partitions, which are read and watched a few in each step.

As `DelayedFetch`, as a coroutine: read all, and where that is too little, wait and read all again. What is appended
between two steps is not missed: a partition is tried when it begins to be watched. The records are in buffers of their
own, so that it does not matter in which step the response leaves; they count as the connection's from their slice on.
"""

import asyncio
from itertools import islice

from ottla.broker.replicas.delayed_fetch import DelayedFetch
from ottla.broker.runtime import ITEMS_PER_SLICE, complete, next_step
from ottla.broker.server.turns import READ_BYTES_PER_STEP
from ottla.protocol.messages.fetch import FetchResponse


class LongFetch(DelayedFetch):
    # The end of what it waits for at present: its turn, more records, the disk.
    __slots__ = ("_awaited",)

    _awaited: "asyncio.Future[None]"

    async def run(self) -> FetchResponse | None:
        """The response; None if the client has gone. The request is parked."""
        self._begin_wait()
        self._context.on_disconnect = self._give_up
        await self._read_in_slices()
        if not self._cold and not self._is_ready() and not self._is_given_up:
            await self._wait_in_slices()
            await self._read_in_slices()
        if self._cold and not self._is_given_up:
            self._begin_wait()
            self._read_cold()
            await self._awaited
        if self._is_given_up:
            self._fetch.abandon()
            return None
        response = self._response()
        # It is encoded in a step of its own.
        await next_step()
        return response

    @property
    def _is_given_up(self) -> bool:
        return bool(self._context.connection.is_closed)

    def _give_up(self) -> None:
        self._replicas.delayed_fetch.cancel(self)
        complete(self._awaited, None)

    def _begin_wait(self) -> None:
        self._awaited = asyncio.get_running_loop().create_future()

    def _end_wait(self) -> None:
        complete(self._awaited, None)

    async def _read_in_slices(self) -> None:
        if not self._turns.may_read:
            self._max_bytes = min(self._max_bytes, READ_BYTES_PER_STEP)
            self._begin_wait()
            self._turns.wait(self._end_wait)
            await self._awaited
        self._watched = []
        room, self._bytes_to_read = self._begin_reading(), 0
        targets = iter(self._fetch.targets)
        while (some := list(islice(targets, ITEMS_PER_SLICE))) and not self._is_given_up:
            read_before = self._bytes_read
            # What others read between two slices leaves less room.
            may_read = min(room - self._bytes_to_read, self._context.connection.fetch_room())
            self._bytes_to_read += may_read - self._read_some(some, may_read)
            self._context.expect_response(self._bytes_to_read)
            self._turns.count_read(len(some), self._bytes_read - read_before)
            await next_step()

    async def _wait_in_slices(self) -> None:
        self._begin_wait()
        purgatory = self._replicas.delayed_fetch
        self._begin_to_watch()
        purgatory.watch(self, ())
        watched, self._watched, self._answers = iter(self._watched), [], []
        while not self.completed and (some := list(islice(watched, ITEMS_PER_SLICE))):
            partitions = [each[0] for each in some]
            self._watch(some)
            purgatory.watch_more(self, partitions)
            await next_step()
        await self._awaited

    def on_complete(self) -> None:
        self._end_wait()

    def _cold_is_read(self) -> None:
        self._end_wait()

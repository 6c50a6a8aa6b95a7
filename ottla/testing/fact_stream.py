"""The facts of groups as they happen, for a test that follows them: an iterator, for coroutines too, that ends at its
deadline."""

import asyncio
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Self
from weakref import ref

from ottla.coordinator.facts import Fact
from ottla.testing.histories import GroupHistories


class FactStream(Iterator[Fact]):
    """Facts from the moment on at which it is made. Any thread may iterate, but for the brokers' own."""

    def __init__(
        self, histories: GroupHistories, call: Callable[..., object], kinds: tuple[type[Fact], ...], within_s: float
    ) -> None:
        """`call` runs a function on the loop of the brokers. Without `kinds`, facts of all kinds."""
        self._facts: SimpleQueue[Fact] = SimpleQueue()
        self._kinds = kinds or (Fact,)
        self._ends_at = time.monotonic() + within_s
        call(_listen, histories, ref(self))

    def note(self, fact: Fact) -> None:
        if isinstance(fact, self._kinds):
            self._facts.put(fact)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Fact:
        try:
            return self._facts.get(timeout=max(self._ends_at - time.monotonic(), 0))
        except Empty:
            raise StopIteration from None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Fact:
        fact = await asyncio.to_thread(next, self, None)
        if fact is None:
            raise StopAsyncIteration
        return fact


def _listen(histories: GroupHistories, stream: "ref[FactStream]") -> None:
    """As long as somebody holds the stream."""

    def hear(fact: Fact, now_ms: int) -> None:
        del now_ms
        listening = stream()
        if listening is None:
            histories.listeners.remove(hear)
        else:
            listening.note(fact)

    histories.listeners.append(hear)

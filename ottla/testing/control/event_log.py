"""What happens, numbered from 1 on, for those who ask for it: facts of groups, hits of rules, what control did."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import fields
from enum import Enum
from time import time_ns
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from ottla.coordinator.facts import Fact

if TYPE_CHECKING:
    from ottla.testing.faults.faults import Fault

EVENTS_KEPT: Final = 10_000
NS_PER_MS: Final = 1_000_000


class EventLog:
    """Everything here runs on the loop of the brokers."""

    def __init__(self) -> None:
        self._kept: deque[dict[str, Any]] = deque(maxlen=EVENTS_KEPT)
        self._watched: WeakSet[Fault] = WeakSet()
        self._waiting: dict[asyncio.Future[None], None] = {}
        self.count = 0
        """The number of the last one."""

    def add(self, kind: str, **members: Any) -> None:
        self.count += 1
        self._kept.append({"number": self.count, "at_ms": time_ns() // NS_PER_MS, "kind": kind, **members})
        for each in self._waiting:
            if not each.done():
                each.set_result(None)

    def fact(self, fact: Fact, now_ms: int) -> None:
        """Of a group, without the bytes in it."""
        members = {each.name: getattr(fact, each.name) for each in fields(fact)}
        shown = {name: value for name, value in members.items() if not isinstance(value, bytes)}
        self.add(fact.event or type(fact).__name__, broker_ms=now_ms, **{n: _plain(v) for n, v in shown.items()})

    def watch(self, fault: "Fault") -> None:
        """Its hits are events from now on."""
        if fault in self._watched:
            return
        self._watched.add(fault)

        def hit() -> None:
            last = fault.last
            assert last is not None, "it has just hit"
            self.add("fault_hit", fault=fault.id, api=last.api, client_id=last.client_id, action=last.action)

        fault.state.listeners.append(hit)

    def since(self, after: int) -> list[dict[str, Any]]:
        """Those with higher numbers. Where some are not kept any more, the first says which: `gap`."""
        kept = [each for each in self._kept if each["number"] > after]
        oldest = self._kept[0]["number"] if self._kept else self.count + 1
        if after + 1 < oldest:
            return [{"kind": "gap", "from": after + 1, "to": oldest - 1}, *kept]
        return kept

    async def wait(self, after: int, within_s: float) -> None:
        """Until there is one with a higher number, at most so long."""
        if self.count > after:
            return
        came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[came] = None
        try:
            await asyncio.wait([came], timeout=within_s)
        finally:
            del self._waiting[came]


def _plain(value: Any) -> Any:
    """What JSON has."""
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | float() | str():
            return value
        case Sequence():
            return [_plain(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return str(value)

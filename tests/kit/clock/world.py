"""Timers of several brokers in broker time, without the brokers."""

import asyncio
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from ottla.testing.clock.sessions import EXPIRE, SessionPolicy
from ottla.testing.clock.timeline import BrokerTimeline, NodeClock
from ottla.testing.clock.walk import Fired, Traveller, Walk
from ottla.testing.clock.wheel import DrivenEntry, DrivenWheel
from ottla.timer.clock import TimerKind

NS_PER_MS = 1_000_000
WALL_MS = 1_700_000_000_000


class Machine:
    """The machine's clock; only a test moves it."""

    def __init__(self) -> None:
        self.ns = 5_000 * NS_PER_MS

    def now_ns(self) -> int:
        return self.ns

    def now_ms(self) -> int:
        return self.ns // NS_PER_MS

    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms()

    def pass_ms(self, duration_ms: int) -> None:
        self.ns += duration_ms * NS_PER_MS


class Loop:
    """What is to be called later, with the delay in seconds."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_s: float, action: Callable[[], None]) -> Any:
        call = (delay_s, action)
        self.calls.append(call)
        return SimpleNamespace(cancel=lambda: self.calls.remove(call) if call in self.calls else None)

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for _, action in calls:
            action()


class World:
    def __init__(self, nodes: int = 1) -> None:
        self.machine = Machine()
        self.timeline = BrokerTimeline(cast("Any", self.machine))
        self.loop = Loop()
        self.errors: list[Exception] = []
        self.ran: list[tuple[int, Any]] = []
        """When each timer ran, in ms from the start, and its name."""
        self.rests = 0
        self.turns: list[int] = []
        self.start_ms = self.timeline.now_ms()
        self.wheels = {node_id: self._wheel(node_id) for node_id in range(nodes)}

    def _wheel(self, node_id: int) -> DrivenWheel:
        runtime: Any = SimpleNamespace(
            loop=self.loop, node_id=node_id, end_event=lambda: None, report=self.errors.append
        )
        clock = NodeClock(self.timeline, node_id)
        return DrivenWheel(runtime, self.timeline, clock, lambda wheel, now_ms: self.turns.append(now_ms))

    def set(
        self,
        in_ms: int,
        name: Any,
        then: Callable[[], None] = lambda: None,
        *,
        node: int = 0,
        kind: TimerKind = TimerKind.SESSION,
    ) -> DrivenEntry:
        """A timer `in_ms` from now."""

        def fire() -> None:
            self.ran.append((self.timeline.now_ms() - self.start_ms, name))
            then()

        return cast("DrivenEntry", self.wheels[node].schedule(self.timeline.now_ms() + in_ms, fire, kind))

    def repeat(self, every_ms: int, name: Any, kind: TimerKind) -> None:
        self.set(every_ms, name, lambda: self.repeat(every_ms, name, kind), kind=kind)

    def advance(self, delta_ms: int, *, ties: Random | None = None, every: bool = False) -> list[Fired]:
        begin_ms = self.timeline.now_ms()
        target_ms = begin_ms + delta_ms
        unused: Any = None
        policy = SessionPolicy(EXPIRE, {}, unused, begin_ms, target_ms)
        travellers = {node_id: self._traveller(wheel) for node_id, wheel in self.wheels.items()}
        walk = Walk(self.timeline, travellers, policy, cast("Any", self), ties=ties, every=every)
        self.timeline.begin_walk()
        asyncio.run(walk.to(target_ms, all_jobs=delta_ms > 0))
        self.timeline.end_walk()
        for wheel in self.wheels.values():
            wheel.drive()
        return walk.fired

    async def until_quiet(self) -> None:
        self.rests += 1

    def _traveller(self, wheel: DrivenWheel) -> Traveller:
        clock = NodeClock(self.timeline, wheel.node_id)
        transactions = SimpleNamespace(loaded_shards=list)
        parts: Any = SimpleNamespace(runtime=SimpleNamespace(broker_clock=clock), transaction_loader=transactions)
        return Traveller(parts, wheel)

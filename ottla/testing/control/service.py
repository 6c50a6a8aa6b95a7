"""What the routes work with: the brokers, the events, who waits, and which test runs.

What changes something is done one after the other and to its end, whether its caller stays or goes. What waits ends
with its caller.
"""

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from ottla.testing.control.event_log import EventLog
from ottla.testing.control.json_values import INT64_MAX
from ottla.testing.control.problems import Problem, missing, wrong_state, wrong_value
from ottla.testing.control.served_capture import ServedCapture
from ottla.testing.coverage import Coverage
from ottla.testing.faults.faults import Fault, Faults
from ottla.testing.report import ReportMark
from ottla.testing.scope import ControlScope
from ottla.testing.testbed import Testbed
from ottla.testing.waits import Condition, deadline_factor

WAIT_MS_MAX: Final = 60_000
WAITING_MAX: Final = 256
MS_PER_S: Final = 1000

T = TypeVar("T")


class ControlService:
    """Everything here runs on the loop of the brokers."""

    def __init__(self, bed: Testbed, events: EventLog, scope: ControlScope | None = None) -> None:
        """`scope`: the part of the brokers that this is for."""
        self.bed = bed
        self.events = events
        self.scope = ControlScope(bed) if scope is None else scope
        self.waiting = 0
        """Requests that wait for something to happen."""
        self.test = ""
        """The one that has begun last."""
        self.mark = ReportMark.now(bed)
        self.capture: ServedCapture | None = None
        """The one that was begun last."""
        self._changing = asyncio.Lock()
        self._works: set[asyncio.Task[Any]] = set()

    @property
    def faults(self) -> Faults:
        return self.bed.hosted.fault_host.faults

    def fault(self, fault_id: str) -> Fault:
        """Raises Problem."""
        own = {each.id: each for each in self.own_faults()}
        if fault_id not in own:
            raise missing("fault", f"there is no rule {fault_id!r}, only {', '.join(own) or 'none'}")
        return own[fault_id]

    def own_faults(self) -> list[Fault]:
        """Those that there are now."""
        return [each for each in self.faults if self.scope.covers(each.id)]

    def watch_faults(self) -> None:
        """Hits of all rules that there are now are events."""
        for fault in self.faults:
            self.events.watch(fault)

    def check_running(self) -> None:
        """Raises Problem."""
        if not self.bed.hosted.parts():
            raise wrong_state("no broker runs: POST /v1/brokers/N/restart starts one")

    async def change(self, work: Coroutine[Any, Any, T]) -> T:
        """Does it after what others change, and to its end."""
        task = asyncio.get_running_loop().create_task(self._locked(work), name="control")
        self._works.add(task)
        task.add_done_callback(self._works.discard)
        return await asyncio.shield(task)

    async def _locked(self, work: Coroutine[Any, Any, T]) -> T:
        async with self._changing:
            return await work

    async def close(self) -> None:
        """When nothing is changed any more. A capture is over then, and gone."""
        if self._works:
            await asyncio.wait(self._works)
        capture, self.capture = self.capture, None
        if capture is not None:
            if not capture.is_stopped:
                await capture.stop()
            capture.close()

    # Coverage.

    @property
    def coverage(self) -> Coverage:
        counted = self.bed.wire.coverage
        assert counted is not None, "brokers that have a control count"
        return counted

    def forget_coverage(self) -> None:
        self.bed.wire.coverage = Coverage()

    # Waits.

    async def wait(self, condition: Condition, within_ms: int | None) -> float:
        """How long it took, in ms. Without `within_ms` the deadline of the brokers holds. Raises Problem and
        DeadlineExceeded."""
        within_s = self.bed.deadline_s if within_ms is None else checked_wait(within_ms, "within_ms") / MS_PER_S
        loop = asyncio.get_running_loop()
        began = loop.time()
        with self.waits():
            await self.bed.waits.wait(condition, min(within_s, WAIT_MS_MAX / MS_PER_S / max(deadline_factor(), 1)))
        return round((loop.time() - began) * MS_PER_S, 1)

    @contextmanager
    def waits(self) -> Generator[None]:
        """While a request waits. Raises Problem where too many do."""
        if self.waiting >= WAITING_MAX:
            raise Problem(503, "too-many-waits", f"{WAITING_MAX} requests wait already")
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1


def check_range(field: str, value: float, lowest: float, highest: float) -> None:
    """Raises Problem."""
    if not lowest <= value <= highest:
        shown = int(value) if abs(value) <= INT64_MAX and value == int(value) else value
        raise wrong_value(field, f"{shown}, expected {lowest} to {highest}")


def checked_wait(wait_ms: int, field: str) -> int:
    """Raises Problem."""
    if not 0 <= wait_ms <= WAIT_MS_MAX:
        raise wrong_value(field, f"{wait_ms}, expected milliseconds up to {WAIT_MS_MAX}")
    return wait_ms

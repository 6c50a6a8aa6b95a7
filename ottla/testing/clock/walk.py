"""How broker time moves on: it walks from one timer to the next, and does not jump.

At each stop, which is the earliest deadline of all brokers, the clock is set to it, the timers that are due run, and
the brokers come to rest before time moves on. So a timer that was set by a timer counts from its own moment, as it
would in life. Jobs that look for something again and again (`PERIODIC`) make no stops of their own: those that are due
run before the timers of a stop, and all of them once at the end. That is the same order at a day or a year as in life,
without thousands of rounds that find nothing. Transactions are the exception: what their job finds has to be aborted
when it is due, so the first round that finds one is a stop.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush
from random import Random
from typing import Any, Final, TypeAlias

from ottla.broker.assembly import Parts
from ottla.broker.runtime import LoopRuntime
from ottla.coordinator.classic.causes import JoinPhaseTimer, PendingMemberTimer, PendingSyncTimer, SessionTimer
from ottla.testing.clock.sessions import SessionPolicy
from ottla.testing.clock.timeline import BrokerTimeline, moment
from ottla.testing.clock.wheel import DrivenEntry, DrivenWheel
from ottla.testing.waits import Waits
from ottla.timer.clock import PERIODIC, TimerKind

Timers: TypeAlias = list[tuple[DrivenWheel, DrivenEntry]]
_JOBS: Final = frozenset(PERIODIC)
WITHIN_NS: Final = 50_000_000
"""Clients that work all the while leave brokers no rest: then time moves on after this. It is processor time of the
loop, so that a thread that works for a broker has its time on a busy machine too."""
WITHIN_MIN_NS: Final = 2_000_000
QUIET_TURNS: Final = 4
"""Bytes that one broker sends to another arrive within two turns of the loop."""


@dataclass(frozen=True, slots=True)
class Fired:
    """A timer that has run while time was moved."""

    at: datetime
    node: int
    kind: TimerKind
    what: str
    """Which one of its kind: `group shop, member m-1`; empty for a job that looks after all there is."""


@dataclass(frozen=True, slots=True)
class Traveller:
    """A broker whose time is moved."""

    parts: Parts
    wheel: DrivenWheel

    @property
    def node_id(self) -> int:
        return self.wheel.node_id


class _Agenda:
    """What is pending on a walk: timers in the order of their deadlines, and periodic jobs, which make no stops."""

    def __init__(self, wheels: Iterable[DrivenWheel], *, every: bool) -> None:
        """`every`: each round of a job is a timer like any other."""
        self._wheels = list(wheels)
        self._jobs_make_stops = every
        # An item counts while it bears its entry's number.
        self._timers: list[tuple[int, int, int, DrivenWheel, DrivenEntry]] = []
        self._jobs: dict[DrivenEntry, DrivenWheel] = {}
        for wheel in self._wheels:
            wheel.newly_set = list(wheel.driven_entries())

    def next_ms(self) -> int | None:
        """The deadline of the next timer."""
        self._update()
        while self._timers:
            deadline_ms, _, number, wheel, entry = self._timers[0]
            if entry.number == number and not wheel.is_stopped:
                return deadline_ms
            heappop(self._timers)
        return None

    def take_due(self, at_ms: int) -> Timers:
        """By deadline, then node id, then as they were set."""
        due: Timers = []
        while (next_ms := self.next_ms()) is not None and next_ms <= at_ms:
            *_, wheel, entry = heappop(self._timers)
            due.append((wheel, entry))
        return due

    def jobs(self) -> Timers:
        self._update()
        self._jobs = {job: wheel for job, wheel in self._jobs.items() if job.pending and not wheel.is_stopped}
        return [(wheel, job) for job, wheel in self._jobs.items()]

    def _update(self) -> None:
        for wheel in self._wheels:
            # One that was moved twice is one timer.
            for entry in dict.fromkeys(wheel.newly_set):
                if entry.kind in _JOBS and not self._jobs_make_stops:
                    self._jobs[entry] = wheel
                elif entry.pending:
                    heappush(self._timers, (entry.deadline_ms, wheel.node_id, entry.number, wheel, entry))
            wheel.newly_set.clear()


class Walk:
    """Use it once."""

    def __init__(
        self,
        timeline: BrokerTimeline,
        travellers: Mapping[int, Traveller],
        policy: SessionPolicy,
        quiet: "Quiet",
        *,
        ties: Random | None = None,
        every: bool = False,
        is_due: Callable[[], bool] = bool,
    ) -> None:
        """`ties` shuffles timers of one deadline; None: by node id, then as they were set. `every`: each round of each
        job is a stop. `is_due`: whether something else has become due at a stop, which ends the walk there."""
        self._timeline = timeline
        self._travellers = travellers
        self._policy = policy
        self._quiet = quiet
        self._ties = ties
        self._every = every
        self._is_due = is_due
        self._agenda = _Agenda((each.wheel for each in travellers.values()), every=every)
        # Transactions whose end was a stop already: one that could not be aborted is none again.
        self._aborted: set[tuple[str, int]] = set()
        self.fired: list[Fired] = []

    async def to(self, target_ms: int, *, all_jobs: bool) -> None:
        """Everything up to that moment, which is not before the present one. `all_jobs`: at its end, also those that
        are not due."""
        await self._quiet.until_quiet()
        while (stop_ms := self._next_stop_ms()) is not None and stop_ms < target_ms:
            await self._stop_at(stop_ms)
            if self._is_due():
                return
        await self._stop_at(target_ms, all_jobs=all_jobs)

    def _next_stop_ms(self) -> int | None:
        next_ms = self._agenda.next_ms()
        deadlines = [] if next_ms is None else [next_ms]
        if not self._every:
            deadlines += [at_ms for each in self._travellers.values() for at_ms in self._transaction_stops(each)]
        return max(min(deadlines), self._timeline.now_ms()) if deadlines else None

    async def _stop_at(self, at_ms: int, *, all_jobs: bool = False) -> None:
        self._timeline.go_to(at_ms)
        for kind in PERIODIC:
            jobs = [(wheel, job) for wheel, job in self._agenda.jobs() if job.kind is kind]
            due = [(wheel, job) for wheel, job in jobs if all_jobs or job.deadline_ms <= at_ms]
            for wheel, job in sorted(due, key=_order):
                self._run(wheel, job)
            if due:
                await self._quiet.until_quiet()
        while due := self._agenda.take_due(at_ms):
            for wheel, entry in self._in_order(due):
                if entry.pending and entry.deadline_ms <= at_ms:
                    self._run(wheel, entry)
            await self._quiet.until_quiet()

    def _in_order(self, due: Timers) -> Timers:
        if self._ties is not None:
            self._ties.shuffle(due)
            due.sort(key=lambda each: each[1].deadline_ms)
        return due

    def _run(self, wheel: DrivenWheel, entry: DrivenEntry) -> None:
        what = self._described(wheel, entry)
        is_spared = self._policy.spare(wheel.node_id, entry.key)
        has_come_to_something = wheel.fire(entry)
        if has_come_to_something and not is_spared:
            self.fired.append(Fired(moment(self._timeline.wall_ms()), wheel.node_id, entry.kind, what))

    # Transactions.

    def _described(self, wheel: DrivenWheel, entry: DrivenEntry) -> str:
        if entry.kind is TimerKind.TRANSACTION_TIMEOUT:
            now_ms, found = self._timeline.now_ms(), open_transactions(self._travellers[wheel.node_id].parts)
            late = [transactional_id for transactional_id, _, end_ms in found if end_ms <= now_ms]
            return ", ".join(f"transactional id {each}" for each in late)
        return describe_key(entry.key)

    def _transaction_stops(self, traveller: Traveller) -> Iterator[int]:
        """The round of the job that finds a transaction to be late."""
        found = [each for each in open_transactions(traveller.parts) if each[:2] not in self._aborted]
        if not found or traveller.wheel.is_stopped:
            return
        jobs = (each for each in traveller.wheel.driven_entries() if each.kind is TimerKind.TRANSACTION_TIMEOUT)
        job = next(jobs, None)
        if job is None:
            return
        interval_ms = traveller.parts.runtime.config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        for transactional_id, start_ms, end_ms in found:
            rounds = max(-(-(end_ms - job.deadline_ms) // interval_ms), 0)
            stop_ms = job.deadline_ms + rounds * interval_ms
            if stop_ms <= self._timeline.now_ms():
                self._aborted.add((transactional_id, start_ms))
            yield stop_ms


def open_transactions(parts: Parts) -> list[tuple[str, int, int]]:
    """Of those that this broker coordinates and may abort: transactional id, wall time of the start, and when it is
    late, by the monotonic clock."""
    clock = parts.runtime.broker_clock
    ahead_ms = clock.wall_ms() - clock.now_ms()
    shards = parts.transaction_loader.loaded_shards()
    if not shards:
        return []
    from ottla.coordinator.transactions.entry import NEVER_TIMES_OUT_MS, TransactionState

    return [
        (
            each.transactional_id,
            each.metadata.start_ms,
            each.metadata.start_ms + each.metadata.timeout_ms + 1 - ahead_ms,
        )
        for shard in shards
        for each in shard.entries.values()
        if each.metadata.state is TransactionState.ONGOING
        and each.pending is None
        and each.metadata.timeout_ms != NEVER_TIMES_OUT_MS
    ]


def describe_key(key: Any) -> str:
    match key:
        case SessionTimer(group_id, member_id) | PendingMemberTimer(group_id, member_id):
            return f"group {group_id}, member {member_id}"
        case JoinPhaseTimer(group_id) | PendingSyncTimer(group_id):
            return f"group {group_id}"
        case _:
            return ""


def _order(each: tuple[DrivenWheel, DrivenEntry]) -> tuple[int, int, int]:
    wheel, entry = each
    return entry.deadline_ms, wheel.node_id, entry.number


# Rest.


class Quiet:
    """After a timer, when all that follows from it has happened. `with` counts the events of all brokers."""

    def __init__(self, waits: Waits, runtimes: Callable[[], Iterable[LoopRuntime]]) -> None:
        self._waits = waits
        self._runtimes = runtimes
        self._events = 0
        self._within_ns = WITHIN_NS
        self.given_up = 0
        """How many times brokers did not come to rest."""

    def __enter__(self) -> "Quiet":
        self._waits.watch(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        self._waits.unwatch(self._count)

    async def until_quiet(self) -> None:
        """No broker has had an event for some turns of the loop, and no thread works for one; or this lasts too
        long."""
        end_ns = time.thread_time_ns() + self._within_ns
        turns, seen = 0, self._events
        while turns < QUIET_TURNS:
            await asyncio.sleep(0)
            is_working = any(runtime.works_under_way for runtime in self._runtimes())
            if not is_working and seen == self._events:
                turns += 1
                continue
            turns, seen = 0, self._events
            if time.thread_time_ns() > end_ns:
                self.given_up += 1
                self._within_ns = max(self._within_ns // 2, WITHIN_MIN_NS)
                return

    def _count(self) -> None:
        self._events += 1

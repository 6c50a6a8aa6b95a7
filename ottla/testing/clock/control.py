"""What moves the time of the brokers of a handle. Everything here runs on their loop."""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from random import Random
from typing import Final, Protocol

from ottla.broker.assembly import Parts
from ottla.broker.runtime import LoopRuntime
from ottla.testing.clock.broker_times import BrokerTimes
from ottla.testing.clock.client_clocks import StampNotes, Travellers
from ottla.testing.clock.sessions import EXPIRE, SPARE, Connected, SessionPolicy, Sessions
from ottla.testing.clock.timeline import (
    TimeState,
    checked_wall,
    describe_ms,
    moment,
    moment_text,
)
from ottla.testing.clock.walk import Fired, Quiet, Traveller, Walk, describe_key, open_transactions
from ottla.testing.clock.wheel import DrivenEntry, DrivenWheel
from ottla.testing.waits import Waits
from ottla.timer.clock import PERIODIC, TimerKind

RATE_MAX_EXPIRE: Final = 20
"""A client that heartbeats every three seconds is dead at any faster rate."""
NOTES_KEPT: Final = 20
PENDING_SHOWN: Final = 3
_HOLD_UP_REQUESTS: Final = (TimerKind.JOIN, TimerKind.SYNC)


@dataclass(frozen=True, slots=True)
class Pending:
    """A timer in broker time that is still to run."""

    node: int
    kind: TimerKind
    what: str
    at: datetime
    in_ms: int


@dataclass(frozen=True, slots=True)
class Jump:
    """What moving the time has led to."""

    fired: list[Fired]
    passed_ms: int


@dataclass(frozen=True, slots=True)
class KeptClock:
    """How time ran at a moment."""

    time: TimeState
    sessions: Sessions
    included: frozenset[str]


class Agenda(Protocol):
    """What is to be done at moments of broker time beside the timers of brokers."""

    def next_ms(self) -> int | None:
        """The next moment that is to come, by the monotonic clock."""
        ...

    def is_due(self) -> bool:
        """Whether something is to be done now."""
        ...

    async def run_one(self) -> None:
        """The first of it."""
        ...

    def drive(self) -> None:
        """Time has begun to run in another way."""
        ...


class ClockControl:
    def __init__(
        self, times: BrokerTimes, parts: Callable[[], Mapping[int, Parts]], connected: Connected, waits: Waits
    ) -> None:
        """`parts`: of the brokers that run, by node id."""
        self.timeline = times.timeline
        self.ties: Random | None = None
        """Shuffles timers of one deadline."""
        self.stamps = StampNotes(self.timeline)
        self.travellers = Travellers()
        self.is_touched = False
        """Since the last reset."""
        self._times = times
        self._parts = parts
        self._connected = connected
        self._waits = waits
        self._sessions: Sessions = SPARE
        self._notes: deque[str] = deque(maxlen=NOTES_KEPT)
        self._has_stamps = False
        self._agenda: Agenda | None = None
        self._lock = asyncio.Lock()
        times.before_turn = self._before_turn
        times.is_moved = lambda: self.is_touched

    def attach(self, parts: Parts) -> None:
        """To a broker that has started."""
        if self._has_stamps:
            self.stamps.install(parts)

    # How time runs.

    def freeze(self, at_ms: int | None = None) -> None:
        """`at_ms`: the wall time that it stands at."""
        self.timeline.freeze()
        if at_ms is not None:
            self.timeline.set_wall(at_ms)
        self._touched("frozen")

    def resume(self) -> None:
        self.timeline.resume()
        self._touched("resumed")

    def set_rate(self, rate: float, sessions: Sessions = SPARE) -> None:
        """Raises ValueError."""
        if not rate > 0:
            raise ValueError(f"rate={rate!r}: expected more than 0; clock.freeze() stops the time")
        if rate > RATE_MAX_EXPIRE and sessions == EXPIRE:
            raise ValueError(f"rate={rate!r} with sessions='expire': at most {RATE_MAX_EXPIRE}, or no client lives")
        self._sessions = sessions
        self.timeline.set_rate(rate)
        self._touched(f"runs at {rate:g} times the machine's")

    def set_wall(self, wall_ms: int) -> None:
        self.timeline.set_wall(wall_ms)
        self._touched("wall time set")

    def skew(self, node_id: int, delta_ms: int) -> None:
        """Raises ValueError for a broker that there is not."""
        self._check_node(node_id)
        self.timeline.skew(node_id, delta_ms)
        self._touched(f"wall clock of broker {node_id} skewed by {describe_ms(delta_ms)}")

    def drift(self, node_id: int, rate: float) -> None:
        """Raises ValueError for a broker that there is not, and for a clock that would not go on."""
        self._check_node(node_id)
        if not rate > 0:
            raise ValueError(f"rate={rate!r}: expected more than 0")
        self.timeline.drift(node_id, rate)
        self._touched(f"wall clock of broker {node_id} runs at {rate:g} times the others'")

    def include(self, names: frozenset[str]) -> None:
        """What goes by broker time from now on, of `INCLUDABLE`; the rest goes by the machine's."""
        self._times.include(names)
        self._touched(f"{' and '.join(sorted(names)) or 'neither tokens nor replication'} included")

    @property
    def included(self) -> frozenset[str]:
        return self._times.included

    def _check_node(self, node_id: int) -> None:
        if node_id not in self._parts():
            raise ValueError(f"there is no broker {node_id} that runs, only {', '.join(map(str, self._parts()))}")

    def reset(self) -> None:
        """Time is the machine's again."""
        self.travellers.clear()
        self.ties = None
        if not self.is_touched:
            return
        self.timeline.make_real()
        self._times.include(frozenset())
        self._drive()
        self._sessions, self.is_touched = SPARE, False
        self.stamps.behind_ms.clear()
        self._notes.clear()

    def kept(self) -> KeptClock | None:
        """For `go_back_to`; None where nothing was moved."""
        return KeptClock(self.timeline.state(), self._sessions, self.included) if self.is_touched else None

    def go_back_to(self, kept: KeptClock | None) -> None:
        """Time runs as it did then, and shows what it would have shown; deadlines stay where they are."""
        if kept is None:
            self.reset()
            return
        self.timeline.go_back_to(kept.time)
        self._sessions = kept.sessions
        self._times.include(kept.included)
        self._touched("as at the snapshot")

    # Moving.

    async def advance(self, delta_ms: int, sessions: Sessions, *, every: bool = False) -> Jump:
        """Raises MomentError."""
        async with self._lock:
            checked_wall(self.timeline.wall_ms() + delta_ms)
            jump = await self._moved(lambda now_ms: now_ms + delta_ms, sessions, all_jobs=delta_ms > 0, every=every)
            self._note(f"advanced by {describe_ms(delta_ms)}, {len(jump.fired)} timers ran")
            for group_id, count in self._groups_that_keep_offsets():
                self._note(f"offsets of group {group_id} do not expire while it has {count} members")
            return jump

    async def run_next(self, kind: TimerKind | None, sessions: Sessions) -> Jump:
        """To the next timer that comes to something, and no further."""
        async with self._lock:
            fired: list[Fired] = []
            passed_ms = 0
            while (at_ms := self._next_ms(kind, sessions)) is not None:
                jump = await self._moved(partial(max, at_ms), sessions)
                fired += jump.fired
                passed_ms += jump.passed_ms
                if any(kind is None or each.kind is kind for each in jump.fired):
                    break
            self._note(f"run to the next timer, {len(fired)} timers ran")
            return Jump(fired, passed_ms)

    def follow(self, agenda: Agenda) -> None:
        """What it has is done while time passes, from now on."""
        self._agenda = agenda

    async def run_due(self) -> None:
        """What the agenda has for now; a jump under way comes to its end first."""
        async with self._lock:
            if self._agenda is not None and self._agenda.is_due():
                with self._time_standing():
                    await self._run_due(self._agenda)

    async def _run_due(self, agenda: Agenda) -> None:
        """Also what becomes due by it, at the same moment."""
        while agenda.is_due():
            await agenda.run_one()
            with Quiet(self._waits, self._runtimes) as quiet:
                await quiet.until_quiet()

    async def _moved(
        self, target_ms_at: Callable[[int], int], sessions: Sessions, *, all_jobs: bool = False, every: bool = False
    ) -> Jump:
        """`target_ms_at` is given the moment from which on time stands. Each moment of the agenda is the end of a walk:
        what it does may end brokers, and start others."""
        agenda, fired = self._agenda, list[Fired]()
        self._touched()
        with self._time_standing():
            begin_ms = self.timeline.now_ms()
            target_ms = target_ms_at(begin_ms)
            if agenda is None:
                fired += await self._walked(target_ms, sessions, all_jobs=all_jobs, every=every)
            else:
                await self._run_due(agenda)
                is_there = False
                while not is_there:
                    stop_ms = min(agenda.next_ms() or target_ms, target_ms)
                    jobs = all_jobs and stop_ms == target_ms
                    fired += await self._walked(stop_ms, sessions, all_jobs=jobs, every=every, is_due=agenda.is_due)
                    is_there = self.timeline.now_ms() >= target_ms
                    await self._run_due(agenda)
            return Jump(fired, self.timeline.now_ms() - begin_ms)

    @contextmanager
    def _time_standing(self) -> Generator[None]:
        """But for walks."""
        self.timeline.begin_walk()
        self._drive()
        try:
            yield
        finally:
            self.timeline.end_walk()
            self._drive()

    async def _walked(
        self,
        target_ms: int,
        sessions: Sessions,
        *,
        all_jobs: bool = False,
        every: bool = False,
        is_due: Callable[[], bool] = bool,
    ) -> list[Fired]:
        timeline, parts = self.timeline, self._parts()
        travellers = {each: Traveller(parts[each], self._times.wheels[each]) for each in parts}
        with Quiet(self._waits, self._runtimes) as quiet:
            policy = SessionPolicy(sessions, parts, self._connected, timeline.now_ms(), target_ms)
            walk = Walk(timeline, travellers, policy, quiet, ties=self.ties, every=every, is_due=is_due)
            await walk.to(max(target_ms, timeline.now_ms()), all_jobs=all_jobs)
            policy.end(timeline.now_ms())
        if quiet.given_up:
            self._note(f"brokers were busy {quiet.given_up} times, and time moved on")
        return walk.fired

    def _drive(self) -> None:
        self._times.drive()
        for parts in self._parts().values():
            for connection in parts.server.connections:
                if connection.gate is not None:
                    connection.gate.measure_session()
        if self._agenda is not None:
            self._agenda.drive()

    def _next_ms(self, kind: TimerKind | None, sessions: Sessions) -> int | None:
        now_ms = self.timeline.now_ms()
        policy = SessionPolicy(sessions, self._parts(), self._connected, now_ms, now_ms)
        deadlines = [
            entry.deadline_ms
            for wheel, entry in self._entries()
            if not wheel.is_stopped
            and (entry.kind not in PERIODIC if kind is None else entry.kind is kind)
            and not policy.spares(wheel.node_id, entry.key)
        ]
        return max(min(deadlines), now_ms) if deadlines else None

    # What there is.

    def pending(self) -> list[Pending]:
        """By deadline; beside timers the ends of open transactions."""
        found = [
            self._pending(wheel.node_id, each.kind, self._what(each), each.deadline_ms)
            for wheel, each in self._entries()
        ]
        for node_id, parts in self._parts().items():
            found += [
                self._pending(node_id, TimerKind.TRANSACTION_TIMEOUT, f"transactional id {transactional_id}", end_ms)
                for transactional_id, _, end_ms in open_transactions(parts)
            ]
        return sorted(found, key=lambda each: (each.in_ms, each.node))

    def hints(self, *, of_wait: bool = False) -> list[str]:
        """What of it may be behind a failure. `of_wait`: a frozen clock, whatever it holds up."""
        hints = self.stamps.hints()
        if self.timeline.is_frozen:
            held_up = [each for each in self.pending() if each.kind in _HOLD_UP_REQUESTS][:PENDING_SHOWN]
            ends = [f"{each.kind} of {each.what} would end in {describe_ms(each.in_ms)}" for each in held_up]
            if ends or of_wait:
                passing = "clock.advance() or clock.resume() lets it pass"
                hints.append("; ".join(["broker time is frozen", *ends, passing]))
        return hints

    def report(self) -> list[str]:
        """Nothing where nothing was moved."""
        if not self.is_touched:
            return []
        timeline = self.timeline
        ahead_ms = timeline.wall_ms() - timeline.machine.wall_ms()
        how = "frozen" if timeline.is_frozen else f"at rate {timeline.rate:g}"
        apart = f"{describe_ms(abs(ahead_ms))} {'behind' if ahead_ms < 0 else 'ahead of'} the machine's"
        lines = [f"{moment_text(moment(timeline.wall_ms()))}, {how}, {apart}", *self._notes]
        pending = [each for each in self.pending() if each.kind not in PERIODIC][:PENDING_SHOWN]
        lines += [f"pending: {each.kind} of {each.what} in {describe_ms(each.in_ms)}" for each in pending]
        return lines + self.stamps.hints()

    def _pending(self, node_id: int, kind: TimerKind, what: str, deadline_ms: int) -> Pending:
        timeline = self.timeline
        return Pending(
            node_id, kind, what, moment(deadline_ms + timeline.wall_ahead_ms), max(deadline_ms - timeline.now_ms(), 0)
        )

    def _what(self, entry: DrivenEntry) -> str:
        if entry.kind is TimerKind.OFFSETS_EXPIRY:
            kept = (
                f"not of group {group_id}, which has {count} members"
                for group_id, count in self._groups_that_keep_offsets()
            )
            return ", ".join(kept)
        return describe_key(entry.key)

    def _groups_that_keep_offsets(self) -> list[tuple[str, int]]:
        """They have members, and offsets that would expire without."""
        shards = (shard for parts in self._parts().values() for shard in parts.group_loader.loaded_shards())
        return [
            (group_id, len(group.members))
            for shard in shards
            for group_id, group in shard.groups.items()
            if group.members and shard.durable.offsets.get(group_id)
        ]

    # Inside.

    def _entries(self) -> Iterator[tuple[DrivenWheel, DrivenEntry]]:
        for node_id in self._parts():
            wheel = self._times.wheels[node_id]
            for entry in wheel.driven_entries():
                yield wheel, entry

    def _runtimes(self) -> list[LoopRuntime]:
        return [parts.runtime for parts in self._parts().values()]

    def _before_turn(self, wheel: DrivenWheel, now_ms: int) -> None:
        """Living clients are spared from time that runs faster than theirs: they have their timeouts in the machine's
        time, from now on."""
        rate = self.timeline.rate
        if rate <= 1:
            return
        policy = SessionPolicy(self._sessions, self._parts(), self._connected, 0, now_ms, stretch=rate)
        for entry in wheel.driven_entries():
            if entry.key is not None and entry.deadline_ms <= now_ms:
                policy.spare(wheel.node_id, entry.key)

    def _touched(self, note: str | None = None) -> None:
        self.is_touched = True
        if not self._has_stamps:
            self._has_stamps = True
            for parts in self._parts().values():
                self.stamps.install(parts)
        if note is not None:
            self._note(note)
            self._drive()

    def _note(self, note: str) -> None:
        self._notes.append(note)

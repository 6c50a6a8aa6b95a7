"""The two times of brokers under test: the machine's, and one that a test can stop, move and speed up.

Both read `CLOCK_MONOTONIC` by `clock_gettime_ns`, and the wall clock once, at the start: neither time-machine nor
freezegun replaces the one, and what they do to the other is over by then. Below, durations and moments as tests write
them.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from time import CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime_ns
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

NS_PER_MS: Final = 1_000_000
Delta: TypeAlias = float | timedelta | str
"""Seconds, a timedelta, or text such as "500ms", "90s", "1h 30m" or "7d"."""

WALL_MS_MAX: Final = 253_370_764_800_000
"""9999-01-01, so that a year is left in which moments can be written down."""

_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_WHOLE: Final = re.compile(rf"-?(?:{_PART.pattern})+\s*")


class MomentError(ValueError):
    """What no time of brokers can be, in one sentence."""


class MachineClock:
    """Transport time: `ottla.timer.clock.Clock` over the machine's clock."""

    def __init__(self) -> None:
        self._wall_ahead_ms = clock_gettime_ns(CLOCK_REALTIME) // NS_PER_MS - self.now_ms()

    def now_ns(self) -> int:
        return clock_gettime_ns(CLOCK_MONOTONIC)

    def now_ms(self) -> int:
        return clock_gettime_ns(CLOCK_MONOTONIC) // NS_PER_MS

    def wall_ms(self) -> int:
        return self.now_ms() + self._wall_ahead_ms


class TimeState(NamedTuple):
    """How broker time ran at a moment."""

    rate: float
    is_frozen: bool
    skews_ms: Mapping[int, int]
    wall_ms: int
    machine_wall_ms: int
    drifts: Mapping[int, float] = MappingProxyType({})


class BrokerTimeline:
    """Broker time. It begins as the machine's, never goes back, and stands still while it is walked along."""

    def __init__(self, machine: MachineClock) -> None:
        self.machine = machine
        self.rate = 1.0
        """Seconds of broker time in a second of the machine's, where it is not frozen."""
        self.is_frozen = False
        self.is_walking = False
        self.skews_ms: dict[int, int] = {}
        """How far the wall clock of a broker is ahead of the others', by node id; without what it drifts."""
        self._drifts: dict[int, tuple[float, int]] = {}
        """The rate of a broker's wall clock against the others', and since when."""
        self._since_ns = machine.now_ns()
        self._base_ns = self._since_ns
        self._speed = 1.0
        self.wall_ahead_ms = machine.wall_ms() - self.now_ms()
        """Of the wall clock, to the monotonic one."""
        self._latest_wall_ms = 0

    @property
    def stands_still(self) -> bool:
        return self.is_frozen or self.is_walking

    def now_ns(self) -> int:
        elapsed_ns = self.machine.now_ns() - self._since_ns
        return self._base_ns + (elapsed_ns if self._speed == 1.0 else int(elapsed_ns * self._speed))

    def now_ms(self) -> int:
        return self.now_ns() // NS_PER_MS

    def wall_ms(self) -> int:
        return self.now_ms() + self.wall_ahead_ms

    @property
    def latest_wall_ms(self) -> int:
        """The latest that the wall clock has shown, also where it was set back since."""
        return max(self._latest_wall_ms, self.wall_ms())

    def forget_latest(self) -> None:
        self._latest_wall_ms = 0

    def freeze(self) -> None:
        self.is_frozen = True
        self._changed()

    def resume(self) -> None:
        self.is_frozen = False
        self._changed()

    def set_rate(self, rate: float) -> None:
        self.rate = rate
        self._changed()

    def begin_walk(self) -> None:
        self.is_walking = True
        self._changed()

    def end_walk(self) -> None:
        self.is_walking = False
        self._changed()

    def go_to(self, now_ms: int) -> None:
        """On a walk."""
        assert self.is_walking, "broker time is moved by walking along it"
        assert now_ms >= self.now_ms(), f"broker time went backwards, from {self.now_ms()} to {now_ms} ms"
        self._base_ns = max(now_ms * NS_PER_MS, self._base_ns)

    def set_wall(self, wall_ms: int) -> None:
        """Deadlines stay where they are."""
        self._latest_wall_ms = self.latest_wall_ms
        self.wall_ahead_ms = wall_ms - self.now_ms()

    def skew_ms(self, node_id: int) -> int:
        """How far the wall clock of a broker is ahead of the others' now."""
        skew_ms = self.skews_ms.get(node_id, 0)
        if node_id in self._drifts:
            rate, since_ns = self._drifts[node_id]
            skew_ms += int((self.now_ns() - since_ns) * (rate - 1)) // NS_PER_MS
        return skew_ms

    def skew(self, node_id: int, skew_ms: int) -> None:
        """It drifts on from there."""
        self.skews_ms[node_id] = skew_ms
        if node_id in self._drifts:
            self._drifts[node_id] = self._drifts[node_id][0], self.now_ns()

    def drift(self, node_id: int, rate: float) -> None:
        """From now on; 1 leaves it as far ahead as it is."""
        self.skews_ms[node_id] = self.skew_ms(node_id)
        self._drifts[node_id] = rate, self.now_ns()

    def make_real(self) -> None:
        """It runs as the machine's again, with the right wall time; what has passed has passed."""
        now_ms = self.machine.wall_ms()
        self.go_back_to(TimeState(1.0, False, {}, now_ms, now_ms))

    def state(self) -> TimeState:
        skews_ms = {node_id: self.skew_ms(node_id) for node_id in self.skews_ms}
        drifts = {node_id: rate for node_id, (rate, _) in self._drifts.items()}
        return TimeState(self.rate, self.is_frozen, skews_ms, self.wall_ms(), self.machine.wall_ms(), drifts)

    def go_back_to(self, state: TimeState) -> None:
        """It runs as it did then. A wall clock that stood still shows what it did, another one is as far from the
        machine's. Deadlines stay where they are."""
        self.rate, self.is_frozen = state.rate, state.is_frozen
        self.skews_ms.clear()
        self.skews_ms |= state.skews_ms
        self._changed()
        self._drifts = {node_id: (rate, self.now_ns()) for node_id, rate in state.drifts.items()}
        passed_ms = 0 if state.is_frozen else self.machine.wall_ms() - state.machine_wall_ms
        self.set_wall(state.wall_ms + passed_ms)

    def delay_s(self, deadline_ms: int) -> float | None:
        """How long the machine has to wait for a deadline; None: it does not come by itself."""
        left_ns = deadline_ms * NS_PER_MS - self.now_ns()
        if self.is_walking or (self.is_frozen and left_ns > 0):
            return None
        return max(left_ns, 0) / self.rate / 1e9

    def _changed(self) -> None:
        now_ns = self.now_ns()
        self._since_ns, self._base_ns = self.machine.now_ns(), now_ns
        self._speed = 0.0 if self.stands_still else self.rate


class NodeClock:
    """`ottla.timer.clock.Clock` of one broker."""

    def __init__(self, timeline: BrokerTimeline, node_id: int) -> None:
        self._timeline = timeline
        self._node_id = node_id
        self.now_ns = timeline.now_ns
        self.now_ms = timeline.now_ms

    def wall_ms(self) -> int:
        timeline = self._timeline
        return timeline.now_ns() // NS_PER_MS + timeline.wall_ahead_ms + timeline.skew_ms(self._node_id)


def parse_delta(delta: Delta) -> int:
    """In milliseconds, which may be negative. Raises MomentError."""
    match delta:
        case timedelta():
            return _whole_ms(delta, delta // timedelta(milliseconds=1))
        case str() if _WHOLE.fullmatch(delta):
            total_ms = sum(float(number) * _MS[unit] for number, unit in _PART.findall(delta))
            return _whole_ms(delta, -total_ms if delta.startswith("-") else total_ms)
        case int() | float() if not isinstance(delta, bool):
            return _whole_ms(delta, delta * 1000)
        case _:
            raise MomentError(f"{_shown(delta)}: expected seconds, a timedelta, or text such as '90s' or '7d'")


def _whole_ms(delta: Delta, ms: float) -> int:
    """Raises MomentError."""
    if not abs(ms) <= WALL_MS_MAX:
        raise MomentError(f"{_shown(delta)}: no clock goes as far")
    return round(ms)


def _shown(delta: object) -> str:
    return repr(delta)[:60]


def parse_forward(delta: Delta) -> int:
    """Raises MomentError, for a negative one too."""
    delta_ms = parse_delta(delta)
    if delta_ms < 0:
        raise MomentError(f"{_shown(delta)}: broker time does not go back; clock.set() moves the wall clock alone")
    return delta_ms


def parse_moment(when: datetime) -> int:
    """In milliseconds since 1970; one without a zone is UTC. Raises MomentError."""
    return checked_wall(round((when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp() * 1000))


def checked_wall(wall_ms: int) -> int:
    """A wall time that brokers can have. Raises MomentError."""
    if not 0 <= wall_ms <= WALL_MS_MAX:
        raise MomentError("the wall clock of brokers shows moments from 1970 to 9998")
    return wall_ms


def moment(wall_ms: int) -> datetime:
    return datetime.fromtimestamp(wall_ms / 1000, UTC)


def moment_text(at: datetime) -> str:
    """`2026-11-23T12:00:00.000+00:00`."""
    return at.isoformat(timespec="milliseconds")


def describe_ms(duration_ms: int) -> str:
    """`8 d`, `1.5 h`, `300 ms`."""
    for unit in ("d", "h", "m", "s"):
        if abs(duration_ms) >= _MS[unit]:
            return f"{duration_ms / _MS[unit]:.4g} {unit}"
    return f"{duration_ms} ms"

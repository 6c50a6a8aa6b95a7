"""What one rule has done so far, and whether it acts on the next request. Its brokers' loop alone changes it."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from traceback import extract_tb
from typing import Any, Final

from ottla.testing.faults.calls import FaultCall, FaultParts
from ottla.testing.faults.error_places import Place
from ottla.testing.faults.matching import VALUES_KEPT, Matcher
from ottla.testing.faults.request_units import Unit
from ottla.testing.faults.rule_values import Moment, parse_moment, parse_nth
from ottla.testing.faults.rules import Rule

HITS_KEPT: Final = 1000
COUNTED_APART_MAX: Final = 10_000
_NEAR_MISSES_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Hit:
    """One request that a rule acted on."""

    broker_ms: int
    """The broker's time, monotonic."""
    machine_ns: int
    """The machine's time, since 1970."""
    node: int
    connection: int
    """The how-manieth that rules have seen on its broker."""
    client_id: str
    api: str
    version: int
    correlation_id: int
    action: str
    units: tuple[str, ...]
    """Of what the request names, what matched: `orders-0`, `shop`; at most eight."""


HitObserver = Callable[[str, Hit], None]
"""Called with the id of the rule, when it acts."""


class FaultState:
    def __init__(
        self,
        rule: Rule,
        seed: int,
        state_of: "Callable[[str], FaultState]",
        hit_observers: Iterable[HitObserver] = (),
    ) -> None:
        """`state_of` gives the other rules that it names, by their ids: they stay its own though they are removed."""
        self.rule = rule
        self.do = rule.do
        self.changed = threading.Condition()
        self.listeners: list[Callable[[], None]] = []
        self.held: deque[Callable[[], None]] = deque()
        self._seed = seed
        self._hit_observers = hit_observers
        self._nth = parse_nth(rule.match["nth"]) if "nth" in rule.match else None
        self._nth_of: str | None = rule.match.get("nth_of")
        self._probability: float | None = rule.match.get("probability")
        self._bounds = [
            (name, rule.match[name], parse_moment(name, rule.match[name]))
            for name in ("after", "until")
            if name in rule.match
        ]
        self._named = {given: state_of(given) for _, given, moment in self._bounds if moment.kind is Moment.RULE}
        self._matchers: dict[FaultParts, Matcher] = {}
        # Of its errors, by API, version, and whether the request can only fail as a whole; None for the whole request.
        self.places: dict[tuple[int, int, bool], Place | None] = {}
        self._began_ms: dict[FaultParts, int] = {}
        self.reset()

    def reset(self) -> None:
        self.hits = 0
        self.hit_log: deque[Hit] = deque(maxlen=HITS_KEPT)
        self.random = Random(f"{self._seed}/{self.rule.id}")
        self.failure = ""
        """What its own function did first that it may not, as the end of a sentence."""
        self._counted: dict[Any, int] = {}
        self._matchers.clear()
        for parts in self._began_ms:
            self._began_ms[parts] = parts.runtime.broker_clock.now_ms()

    def as_new(self, made: "Mapping[FaultState, FaultState]") -> "FaultState":
        """The rule without what it has done. It names those of `made`, where the ones that it names now have such; the
        others had been removed."""
        return FaultState(
            self.rule, self._seed, lambda name: made.get(self._named[name], self._named[name]), self._hit_observers
        )

    @property
    def is_exhausted(self) -> bool:
        return self.rule.times is not None and self.hits >= self.rule.times

    def begin(self, parts: FaultParts) -> None:
        """It is in force on this broker from now on."""
        self._began_ms.setdefault(parts, parts.runtime.broker_clock.now_ms())

    def take(self, call: FaultCall, parts: FaultParts, taken: set[int]) -> list[Unit] | None:
        """The units that it acts on, which counts as a hit; None: it lets the request pass."""
        matcher = self._matchers.get(parts)
        if matcher is None:
            matcher = self._matchers[parts] = Matcher(self.rule, parts, self.fail)
        units = matcher.match(call, taken)
        if units is None or (taken and not units):
            return None
        if not self._is_time(parts):
            return None
        if self._probability is not None and self.random.random() >= self._probability:
            return None
        if self._nth is not None:
            units = self._counted_units(call, parts, units)
            if units is None:
                return None
        if self.is_exhausted:
            return None
        self._record(call, parts, units)
        return units

    def release(self, count: int | None) -> int:
        released = 0
        while self.held and (count is None or released < count):
            self.held.popleft()()
            released += 1
        return released

    def fail(self, error: Exception) -> None:
        """Its own function, of `when` or `call`, has raised it."""
        if not self.failure:
            where = extract_tb(error.__traceback__)
            place = f" ({Path(where[-1].filename).name}:{where[-1].lineno})" if where else ""
            self.failure = f"its function raised {type(error).__name__}: {error}{place}"

    def near_misses(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for matcher in self._matchers.values():
            for field, count in matcher.near_misses.counts.items():
                total[field] = total.get(field, 0) + count
        return total

    def explain(self) -> str:
        """In a sentence what it has done, or why it has done nothing."""
        described = f"{self.rule.id!r} ({_shown(self.rule)})"
        if self.hits:
            failed = f"; {self.failure}" if self.failure else ""
            return f"{described} had {self.hits} hit{'s' * (self.hits != 1)}{failed}"
        if self.failure:
            return f"{described} never hit: {self.failure}"
        looked_at = sum(matcher.looked_at for matcher in self._matchers.values())
        if not looked_at:
            apis = ", ".join(api.name for api in self.rule.apis[:4]) + (", …" if len(self.rule.apis) > 4 else "")
            return f"{described} never hit: no {apis} request came that it could match"
        near = sorted(self.near_misses().items(), key=lambda pair: -pair[1])[:_NEAR_MISSES_SHOWN]
        if near:
            shown = "; ".join(self._described(field, count) for field, count in near)
            return f"{described} never hit: {shown}"
        if self._probability is not None:
            odds = (1 - self._probability) ** looked_at
            return f"{described} never hit in {looked_at} requests, for which the odds were {odds:.2g}"
        return f"{described} never hit: {looked_at} requests were looked at, and none was its turn or matched nearly"

    def _described(self, field: str, count: int) -> str:
        values: dict[Any, int] = {}
        for matcher in self._matchers.values():
            for value, times in matcher.near_misses.values.get(field, {}).items():
                values[value] = values.get(value, 0) + times
        had = ", ".join(map(repr, sorted(values, key=lambda value: -values[value])[:VALUES_KEPT]))
        wanted = self.rule.match.get(field, "client" if field == "peer" else None)
        requests = "1 request" if count == 1 else f"{count} requests"
        return f"{requests} matched all but {field}: {had} ≠ {wanted!r}"

    def _is_time(self, parts: FaultParts) -> bool:
        clock = parts.runtime.broker_clock
        for name, given, moment in self._bounds:
            if moment.kind is Moment.RULE:
                has_come = self._named[given].hits > 0
            elif moment.kind is Moment.DURATION:
                has_come = clock.now_ms() - self._began_ms[parts] >= moment.ms
            else:
                has_come = clock.wall_ms() >= moment.ms
            if has_come != (name == "after"):
                return False
        return True

    def _counted_units(self, call: FaultCall, parts: FaultParts, units: list[Unit]) -> list[Unit] | None:
        """Those whose turn it is, of a request that counts now."""
        assert self._nth is not None, "it counts requests"
        if self._nth_of == "partition":
            chosen = [unit for unit in units if self._nth(self._count(tuple(sorted(unit.values.items(), key=str))))]
            return chosen or None
        key: Any = None
        if self._nth_of == "connection":
            key = parts.node_id, parts.ordinal(call.context.connection)
        elif self._nth_of == "client":
            key = call.client_id
        return units if self._nth(self._count(key)) else None

    def _count(self, key: Any) -> int:
        count = self._counted.pop(key, 0) + 1
        # The longest unused goes first: a connection that has ended counts no more.
        self._counted[key] = count
        if len(self._counted) > COUNTED_APART_MAX:
            del self._counted[next(iter(self._counted))]
        return count

    def _record(self, call: FaultCall, parts: FaultParts, units: list[Unit]) -> None:
        clock = parts.runtime.broker_clock
        hit = Hit(
            broker_ms=clock.now_ms(),
            machine_ns=time.time_ns(),
            node=parts.node_id,
            connection=parts.ordinal(call.context.connection),
            client_id=call.client_id,
            api=call.api,
            version=call.version,
            correlation_id=call.context.correlation_id,
            action=self.do.key,
            units=tuple(_shown_unit(unit) for unit in units[:VALUES_KEPT]),
        )
        with self.changed:
            self.hits += 1
            self.hit_log.append(hit)
            self.changed.notify_all()
        for observe in self._hit_observers:
            observe(self.rule.id, hit)
        for listener in list(self.listeners):
            listener()


def _shown_unit(unit: Unit) -> str:
    """A request that names a topic only has no partition."""
    return "-".join(str(value) for value in unit.values.values() if value is not None)[:100]


def _shown(rule: Rule) -> str:
    shown = ", ".join(f"{name}: {value}" for name, value in rule.match.items() if name != "when")
    return f"{{{shown}}} → {rule.do.key}"

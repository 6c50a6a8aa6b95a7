"""Fault rules of a broker or a cluster: added and removed at any time, in force at once, for open connections too.

    with broker.faults.fault(api="Produce", topic="orders", do=Drop("response")) as rule:
        ...
        rule.wait(hits=1)

Rules are tried in the order in which they were added. The first *terminal* action wins; delays and bandwidths add up,
and `observe` never ends the search. Errors of several rules for partitions of one request combine: each partition gets
the first rule that matches it, and the others are served for real.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from ottla.testing.faults.actions import Action
from ottla.testing.faults.rule_text import parse_line, parse_rules
from ottla.testing.faults.rule_values import RuleError, as_list
from ottla.testing.faults.rules import RULE_FIELDS, Rule, parse_rule
from ottla.testing.faults.state import FaultState, Hit, HitObserver
from ottla.testing.faulty_dispatcher import FaultyDispatcher
from ottla.testing.usage import checks_usage
from ottla.testing.waits import USUAL_END, DeadlineExceeded, Explanation, WaitEnd, deadline_factor

T = TypeVar("T")
FINISHED_KEPT: Final = 1000


class HitsMissing(DeadlineExceeded):
    """A wait for hits of a rule whose deadline has passed: it says what the rule has missed."""


class FaultHits:
    """The condition that a rule has acted on so many requests."""

    def __init__(self, fault: "Fault", hits: int) -> None:
        self._fault, self._hits = fault, hits
        self.wanted = f"fault {fault.id!r} did not have {hits} hit{'s' * (hits != 1)}"

    def is_met(self) -> bool:
        return self._fault.hits >= self._hits

    def explain(self) -> Explanation:
        missing = [] if self.is_met() else [f"{self._hits - self._fault.hits} of {self._hits} hits"]
        return Explanation(self._fault.explain(), missing)


class UnusedFault(NamedTuple):
    """A rule that never acted."""

    fault: "Fault"
    is_error: bool
    """False for rules that are optional, or left to chance."""
    text: str


@checks_usage
class Fault:
    """A rule that has been added. As a context it is removed at the end."""

    def __init__(self, faults: "Faults", state: FaultState) -> None:
        self._faults = faults
        self.state = state

    @property
    def id(self) -> str:
        return self.state.rule.id

    @property
    def rule(self) -> Rule:
        return self.state.rule

    @property
    def hits(self) -> int:
        """How many requests it has acted on."""
        return self.state.hits

    @property
    def hit_log(self) -> list[Hit]:
        """The last thousand."""
        return list(self.state.hit_log)

    @property
    def last(self) -> Hit | None:
        return self.state.hit_log[-1] if self.state.hit_log else None

    @property
    def is_exhausted(self) -> bool:
        """Whether it has acted as often as it may."""
        return self.state.is_exhausted

    @property
    def near_misses(self) -> dict[str, int]:
        """How many requests matched all fields but one, by that field."""
        return self.state.near_misses()

    @property
    def held(self) -> int:
        """Requests that wait for `release`."""
        return len(self.state.held)

    def to_json(self) -> dict[str, Any]:
        """The rule, as `Faults.add` takes it. Raises RuleError for what is Python only."""
        return self.state.rule.to_json()

    def wait(self, hits: int = 1, *, within: float | None = None) -> None:
        """Until it has acted on so many requests, at most `within` seconds, or the deadline of its brokers, times the
        factor of the environment. Raises HitsMissing. Not for the loop of the broker: there it would wait for
        itself."""
        __tracebackhide__ = True
        self._faults.check_may_block()
        within_s = self._faults.waits_s(within)
        with self.state.changed:
            is_met = self.state.changed.wait_for(lambda: self.state.hits >= hits, within_s)
        if not is_met:
            raise self._faults.missing(FaultHits(self, hits), within_s)

    async def wait_async(self, hits: int = 1, *, within: float | None = None) -> None:
        """`wait` for a coroutine, on whichever loop. Raises HitsMissing."""
        loop = asyncio.get_running_loop()
        met: asyncio.Future[None] = loop.create_future()

        def look() -> None:
            if self.state.hits >= hits and not met.done():
                met.set_result(None)

        def hit() -> None:
            loop.call_soon_threadsafe(look)

        within_s = self._faults.waits_s(within)
        self.state.listeners.append(hit)
        look()
        try:
            async with asyncio.timeout(within_s):
                await met
        except TimeoutError:
            if self.state.hits < hits:
                raise self._faults.missing(FaultHits(self, hits), within_s) from None
        finally:
            self.state.listeners.remove(hit)

    def release(self, count: int | None = None) -> int:
        """Lets requests go on that its `hold` holds, the oldest first, all or so many; gives how many."""
        return self._faults.run(lambda: self.state.release(count))

    def remove(self) -> None:
        """It acts no more; what it holds goes on."""
        self._faults.remove(self)

    def reset(self) -> None:
        """As though it had just been added: no hits, no requests counted."""
        self._faults.run(self.state.reset)

    def explain(self) -> str:
        """In a sentence what it has done, or why it has done nothing."""
        return self.state.explain()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<Fault {self.explain()}>"


@checks_usage
class Faults:
    """The rules of one broker, or of all brokers of a cluster. Methods may be called from any thread."""

    def __init__(
        self,
        seed: int,
        dispatchers: Mapping[int, FaultyDispatcher],
        wait_end: WaitEnd = USUAL_END,
        hit_observers: Iterable[HitObserver] = (),
    ) -> None:
        """`seed` and the id of a rule make the generator of its `probability` and `jitter`. `dispatchers` are those of
        the brokers, by node id, all on one loop. `wait_end`: of waits for hits. `hit_observers`: of all rules."""
        self.seed = seed
        self._wait_end = wait_end
        self._rules: dict[str, Fault] = {}
        self._finished: deque[Fault] = deque(maxlen=FINISHED_KEPT)
        self._dispatchers = dispatchers
        self._hit_observers = hit_observers
        self._named = 0

    def __iter__(self) -> Iterator[Fault]:
        return iter(list(self._rules.values()))

    def __len__(self) -> int:
        return len(self._rules)

    def __getitem__(self, fault_id: str) -> Fault:
        return self._rules[fault_id]

    def fault(self, *, do: Action | Mapping[str, Any] | str, **fields: Any) -> Fault:
        """A rule by keywords: the fields of its match, `do`, and `id`, `times`, `optional`, `force`. Raises
        RuleError."""
        rule: dict[str, Any] = {name: fields.pop(name) for name in RULE_FIELDS if name in fields}
        return self.add({**rule, "match": fields, "do": do})

    def add(self, rule: Mapping[str, Any] | str) -> Fault:
        """One rule: an object of JSON, its text, or a line as the command line takes it
        (`api=Fetch,topic=orders,error=NOT_LEADER_OR_FOLLOWER,times=3`). Raises RuleError."""
        (added,) = self.add_all([rule])
        return added

    def add_all(self, rules: Iterable[Mapping[str, Any] | str]) -> list[Fault]:
        """All of them, or none where one is wrong. Raises RuleError."""
        return self.run(lambda: self._add(list(rules)))

    def load(self, path: str | Path) -> list[Fault]:
        """The rules of a file: JSON, or YAML where the package yaml is installed. Raises RuleError and OSError."""
        return self.add_all(parse_rules(Path(path)))

    def remove(self, fault: Fault) -> None:
        self.run(lambda: self._remove(fault))

    def clear(self, prefix: str = "") -> None:
        """Removes all rules, or those whose ids begin with `prefix`, and forgets what they have done, also for
        `unused`; what they hold goes on."""
        self.run(self._clear if not prefix else lambda: self._clear_own(prefix))

    def drop_waiting(self) -> None:
        """Requests of clients that rules hold up are never applied, and get no answer: for the end of the world that
        they came in. Those of brokers go on."""
        self.run(self._drop_waiting)

    def unused(self) -> list[UnusedFault]:
        """Rules that never acted, those that were removed since the last `clear` among them: a test with such a fault
        has tested something else."""
        return self.run(self._unused)

    def failures(self) -> list[str]:
        """Rules whose own functions, of `when` or `call`, raised something or returned no answer, since the last
        `clear`: each in a sentence."""
        return self.run(lambda: [each.explain() for each in self.all_since_clear() if each.state.failure])

    def all_since_clear(self) -> list[Fault]:
        """Those that were removed, too. On the brokers' loop."""
        return [*self._finished, *self._rules.values()]

    def kept(self) -> list[FaultState]:
        """What `restore` takes, of the rules that there are now. On the brokers' loop. Raises RuleError for what is
        Python only."""
        for fault in self:
            fault.to_json()
        return [fault.state for fault in self]

    def restore(self, kept: Iterable[FaultState]) -> None:
        """Adds the rules as they were, without what they have done. A rule that one of them names, and that had been
        removed by then, keeps its hits. On the brokers' loop."""
        made: dict[FaultState, FaultState] = {}
        for state in kept:
            made[state] = state.as_new(made)
        self._add_states(list(made.values()))

    def apply(self) -> None:
        """Brings the rules to all brokers, on their loop: one has started."""
        states = [fault.state for fault in self._rules.values()]
        for dispatcher in self._dispatchers.values():
            dispatcher.apply(states)

    def run(self, action: Callable[[], T]) -> T:
        """Runs it on the brokers' loop, where rules are looked at, and waits for that."""
        loop = self._loop
        if loop is None or loop.is_closed() or not loop.is_running() or _running_loop() is loop:
            return action()
        return asyncio.run_coroutine_threadsafe(_called(action), loop).result()

    def waits_s(self, within: float | None) -> float:
        """How long a wait lasts; None: as long as the deadline says."""
        return max(self._wait_end.deadline_s if within is None else within, 0) * deadline_factor()

    def missing(self, condition: FaultHits, within_s: float) -> HitsMissing:
        """What a wait raises that is over."""

        def explained() -> Explanation:
            why = condition.explain()
            return replace(why, hints=(*why.hints, *self._wait_end.hints()))

        return HitsMissing(condition.wanted, within_s, self.run(explained))

    def check_may_block(self) -> None:
        """Raises RuntimeError on the brokers' loop."""
        if self._loop is not None and _running_loop() is self._loop:
            raise RuntimeError("wait() would hold up the loop of the broker: await wait_async() there")

    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None:
        """That of the brokers that were started last."""
        return next((each.loop for each in reversed(list(self._dispatchers.values()))), None)

    def _add(self, given: list[Mapping[str, Any] | str]) -> list[Fault]:
        named = self._named
        try:
            rules = self._parsed(given)
        except RuleError:
            self._named = named
            raise
        known = {fault.id: fault.state for fault in self}
        for rule in rules:
            known[rule.id] = FaultState(rule, self.seed, known.__getitem__, self._hit_observers)
        return self._add_states([known[rule.id] for rule in rules])

    def _add_states(self, states: list[FaultState]) -> list[Fault]:
        added = [Fault(self, state) for state in states]
        self._rules |= {fault.id: fault for fault in added}
        self.apply()
        return added

    def _parsed(self, given: list[Mapping[str, Any] | str]) -> list[Rule]:
        known, rules = set(self._rules), list[Rule]()
        for each in given:
            described = parse_line(each) if isinstance(each, str) else each
            rule = parse_rule(described, new_id=lambda: f"fault-{self._next_number(known)}", known_ids=known)
            if rule.id in known:
                raise RuleError(f"id: there is a rule {rule.id!r} already")
            self._check_nodes(rule)
            known.add(rule.id)
            rules.append(rule)
        return rules

    def _check_nodes(self, rule: Rule) -> None:
        """Raises RuleError for a rule about none of the brokers. Before they are open, none of them is known."""
        nodes, known = as_list(rule.match.get("node", [])), sorted(self._dispatchers)
        if nodes and known and not set(nodes).intersection(known):
            raise RuleError(f"node: there is no broker {', '.join(map(str, nodes))}, only {', '.join(map(str, known))}")

    def _next_number(self, known: set[str]) -> int:
        self._named += 1
        while f"fault-{self._named}" in known:
            self._named += 1
        return self._named

    def _remove(self, fault: Fault) -> None:
        if self._rules.get(fault.id) is fault:
            del self._rules[fault.id]
            self._finished.append(fault)
            self.apply()
            fault.release()

    def _clear(self) -> None:
        rules, self._rules = list(self._rules.values()), {}
        self._finished.clear()
        self._named = 0
        self.apply()
        for dispatcher in self._dispatchers.values():
            dispatcher.parts.forget_ordinals()
        for fault in rules:
            fault.release()

    def _drop_waiting(self) -> None:
        for dispatcher in self._dispatchers.values():
            dispatcher.parts.drop_waiting()

    def _clear_own(self, prefix: str) -> None:
        rules = [fault for fault in self._rules.values() if fault.id.startswith(prefix)]
        finished = [fault for fault in self._finished if not fault.id.startswith(prefix)]
        self._finished = deque(finished, maxlen=FINISHED_KEPT)
        if rules:
            self._rules = {fault.id: fault for fault in self._rules.values() if fault not in rules}
            self.apply()
        for fault in rules:
            fault.release()

    def _unused(self) -> list[UnusedFault]:
        found: list[UnusedFault] = []
        for fault in self.all_since_clear():
            if not fault.hits:
                by_chance = "probability" in fault.rule.match
                is_error = not (fault.rule.optional or by_chance)
                found.append(UnusedFault(fault, is_error, fault.explain()))
        return found


async def _called(action: Callable[[], T]) -> T:
    return action()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None

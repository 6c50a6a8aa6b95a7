"""Fault rules of brokers in another process: as data alone, for no code goes over HTTP.

Rules of a worker that shares brokers have ids with its prefix there. Here they have none.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from ottla.testing.control.client import part
from ottla.testing.control.documents import FaultDocument, FaultList
from ottla.testing.faults.faults import Fault, Faults, HitsMissing, UnusedFault
from ottla.testing.faults.rule_text import parse_line
from ottla.testing.faults.rule_values import Moment, parse_moment
from ottla.testing.faults.rules import Rule, parse_rule
from ottla.testing.faults.state import Hit
from ottla.testing.remote.asking import RemoteControl, RemoteRefusal, explanation_of
from ottla.testing.usage import checks_usage
from ottla.testing.waits import DeadlineExceeded

T = TypeVar("T")
HITS_SHOWN: Final = 1000
NO_FAULT: Final = "no-such-fault"
REFERRING: Final = ("after", "until")
"""What names another rule in a match."""
NO_ID: Final = "?"


@checks_usage
class RemoteFault(Fault):
    def __init__(self, control: RemoteControl, document: FaultDocument) -> None:
        self._control = control
        self._last = document
        self._id = document.id.removeprefix(control.prefix)

    @property
    def id(self) -> str:
        return self._id

    @property
    def rule(self) -> Rule:
        described = self.to_json()
        referred = [value for name, value in described["match"].items() if name in REFERRING]
        return parse_rule(described, new_id=lambda: NO_ID, known_ids=referred)

    @property
    def hits(self) -> int:
        return self._now().hits

    @property
    def hit_log(self) -> list[Hit]:
        return list(self._now(HITS_SHOWN).hit_log)

    @property
    def last(self) -> Hit | None:
        return next(iter(self._now(1).hit_log), None)

    @property
    def is_exhausted(self) -> bool:
        return self._now().is_exhausted

    @property
    def near_misses(self) -> dict[str, int]:
        return dict(self._now().near_misses)

    @property
    def held(self) -> int:
        return self._now().held

    def to_json(self) -> dict[str, Any]:
        rule = self._last.rule
        assert rule is not None, "no rule of a function comes over HTTP"
        return {**rule, "id": self._id}

    def wait(self, hits: int = 1, *, within: float | None = None) -> None:
        __tracebackhide__ = True
        try:
            self._control.wait("fault-hits", within, fault=self._last.id, hits=hits)
        except DeadlineExceeded as late:
            raise HitsMissing(late.wanted, late.within_s, explanation_of(late)) from None

    async def wait_async(self, hits: int = 1, *, within: float | None = None) -> None:
        await asyncio.to_thread(self.wait, hits, within=within)

    def release(self, count: int | None = None) -> int:
        return int(self._control.ask("POST", f"{self._path}/release", {"count": count})["released"])

    def remove(self) -> None:
        """Nothing is done where it has been removed."""
        try:
            removed: FaultList = self._control.read(FaultList, "DELETE", self._path)
        except RemoteRefusal as error:
            if error.kind != NO_FAULT:
                raise
            return
        (self._last,) = removed.faults

    def reset(self) -> None:
        raise self._control.not_served("the reset of a rule")

    def explain(self) -> str:
        return self._now().text

    @property
    def _path(self) -> str:
        return f"/v1/faults/{part(self._last.id)}"

    def _now(self, hits_shown: int = 0) -> FaultDocument:
        """Of one that was removed, as it was then."""
        try:
            self._last = self._control.read(FaultDocument, "GET", f"{self._path}?hits={hits_shown}")
        except RemoteRefusal as error:
            if error.kind != NO_FAULT:
                raise
        return self._last


@checks_usage
class RemoteFaults(Faults):
    def __init__(self, control: RemoteControl) -> None:
        self._control = control
        self.seed = control.fault_seed
        control.uses_faults = True

    def __iter__(self) -> Iterator[Fault]:
        found: FaultList = self._control.read(FaultList, "GET", "/v1/faults")
        return iter([RemoteFault(self._control, each) for each in found.faults])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, fault_id: str) -> Fault:
        return {fault.id: fault for fault in self}[fault_id]

    def add_all(self, rules: Iterable[Mapping[str, Any] | str]) -> list[Fault]:
        known = {fault.id for fault in self}
        body = [self._described(parse_line(each) if isinstance(each, str) else each, known) for each in rules]
        if not body:
            return []
        added: FaultList = self._control.read(FaultList, "POST", "/v1/faults", {"rules": body})
        return [RemoteFault(self._control, each) for each in added.faults]

    def remove(self, fault: Fault) -> None:
        fault.remove()

    def clear(self, prefix: str = "") -> None:
        for fault in self:
            if fault.id.startswith(prefix):
                fault.remove()

    def drop_waiting(self) -> None:
        raise self._control.not_served("the end of what waits without a reset")

    def unused(self) -> list[UnusedFault]:
        """Of the rules that there are now."""
        found: list[UnusedFault] = []
        for fault in self:
            if not fault.hits:
                is_exempt = fault.rule.optional or "probability" in fault.rule.match
                found.append(UnusedFault(fault, not is_exempt, fault.explain()))
        return found

    def failures(self) -> list[str]:
        """None: no code goes to another process."""
        return []

    def all_since_clear(self) -> list[Fault]:
        raise self._control.not_served("rules that were removed")

    def apply(self) -> None:
        """They are in force when they have been added."""

    def run(self, action: Callable[[], T]) -> T:
        return action()

    def check_may_block(self) -> None:
        """It may: the brokers are elsewhere."""

    def _described(self, given: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
        """As JSON, with the ids that the brokers know rules by; `known` gets its own. Raises RuleError, for functions
        too."""
        rule = parse_rule(given, new_id=lambda: NO_ID, known_ids=known)
        described, prefix = rule.to_json(), self._control.prefix
        if rule.id == NO_ID:
            del described["id"]
        else:
            known.add(rule.id)
            described["id"] = f"{prefix}{rule.id}"
        for name in REFERRING:
            value = described["match"].get(name)
            if value in known and parse_moment(name, value).kind is Moment.RULE:
                described["match"][name] = f"{prefix}{value}"
        return described

"""Whether a request is one of those that a rule is about; and of the others, by how little they are not.

The fields of a match are tried one after the other. A request that fails by one field alone is a near miss: it is
counted by that field with what the request had instead.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ottla.testing.faults.calls import FaultCall, FaultParts
from ottla.testing.faults.request_units import Unit
from ottla.testing.faults.rule_values import parse_numbers, parse_patterns
from ottla.testing.faults.rules import NUMBER_FIELDS, REQUEST_NUMBERS, REQUEST_TEXTS, TEXT_FIELDS, Rule

VALUES_KEPT: Final = 8
TEXT_KEPT: Final = 80

Holds = Callable[[Any], bool]


class FieldCheck(NamedTuple):
    field: str
    value: Callable[[FaultCall], Any]
    holds: Holds


class NearMisses:
    """How often a field alone was different, and what it was. What is kept is bounded: some values of each field."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.values: dict[str, dict[Any, int]] = {}

    def add(self, field: str, value: Any) -> None:
        self.counts[field] = self.counts.get(field, 0) + 1
        values = self.values.setdefault(field, {})
        if value in values:
            values[value] += 1
        elif len(values) < VALUES_KEPT:
            kept = value[:TEXT_KEPT] if isinstance(value, str) else value
            values[kept] = values.get(kept, 0) + 1


class Matcher:
    """The match of a rule, ready for requests of the APIs it is about."""

    def __init__(self, rule: Rule, parts: FaultParts, failed: Callable[[Exception], None]) -> None:
        """For requests to the broker that has these parts. `failed` gets what the rule's own function raises: such a
        request does not match."""
        match = rule.match
        self._failed = failed
        self.near_misses = NearMisses()
        self.looked_at = 0
        self._when: Callable[[FaultCall], object] | None = match.get("when")
        self._peer: str = match.get("peer", "client")
        self._checks = [
            FieldCheck(name, _TEXTS[name], _text_test(name, match[name])) for name in TEXT_FIELDS if name in match
        ]
        for name in NUMBER_FIELDS:
            if name in match:
                self._checks.append(FieldCheck(name, _numbers(parts)[name], parse_numbers(name, match[name])))
        self._tests: dict[str, Holds] = {
            name: _value_test(name, match[name]) for name in (*REQUEST_TEXTS, *REQUEST_NUMBERS) if name in match
        }
        # By API and version: the tests of the whole request, and those of its units.
        self._split: dict[tuple[int, int], tuple[Tests, Tests]] = {}

    def match(self, call: FaultCall, taken: set[int]) -> list[Unit] | None:
        """The units that match, but for those `taken` by other rules (by identity); an empty list where the rule is
        about the whole of a request that has none. None: not this request."""
        self.looked_at += 1
        missed: tuple[str, Any] | None = None if call.peer == self._peer else ("peer", call.peer)
        for field, value_of, holds in self._checks:
            value = value_of(call)
            if not holds(value):
                if missed is not None:
                    return None
                missed = field, value
        of_request, of_units = self._tests_of(call)
        for name, holds in of_request:
            value = call.values[name]
            if not holds(value):
                if missed is not None:
                    return None
                missed = name, value
        units = call.units
        if of_units:
            units, nearest = _matching(units, of_units, is_missed=missed is not None)
            if not units:
                if nearest is not None:
                    self.near_misses.add(*nearest)
                return None
        if missed is None and not self._holds_when(call):
            missed = "when", False
        if missed is not None:
            self.near_misses.add(*missed)
            return None
        return [unit for unit in units if id(unit) not in taken] if taken else units

    def _holds_when(self, call: FaultCall) -> bool:
        if self._when is None:
            return True
        try:
            return bool(self._when(call))
        except Exception as error:
            self._failed(error)
            return False

    def _tests_of(self, call: FaultCall) -> "tuple[Tests, Tests]":
        key = call.route.api.key, call.version
        split = self._split.get(key)
        if split is None:
            top = [(name, holds) for name, holds in self._tests.items() if name in call.values]
            rest = [(name, holds) for name, holds in self._tests.items() if name not in call.values]
            split = self._split[key] = top, rest
        return split


Tests = list[tuple[str, Holds]]


def _matching(units: Sequence[Unit], tests: Tests, *, is_missed: bool) -> tuple[list[Unit], tuple[str, Any] | None]:
    """Those for which all tests hold. If there is none and nothing else `is_missed`: the one field that the nearest
    unit fails by, if it is one."""
    found: list[Unit] = []
    nearest: tuple[str, Any] | None = None
    for unit in units:
        failed: tuple[str, Any] | None = None
        fails = 0
        for name, holds in tests:
            value = unit.values.get(name)
            # Which partitions there are, some APIs say in the response only.
            if not (holds(value) if value is not None else name == "partition" and name in unit.values):
                failed = name, value
                fails += 1
                if fails > 1:
                    break
        if not fails:
            found.append(unit)
        elif fails == 1:
            nearest = failed
    return found, None if found or is_missed else nearest


_TEXTS: Final[dict[str, Callable[[FaultCall], Any]]] = {
    "client_id": lambda call: call.client_id,
    "software": lambda call: call.software,
    "principal": lambda call: str(call.context.principal),
    "listener": lambda call: call.context.connection.listener_name,
    "address": lambda call: call.context.client_host,
}


def _numbers(parts: FaultParts) -> dict[str, Callable[[FaultCall], Any]]:
    return {
        "connection": lambda call: parts.ordinal(call.context.connection),
        "node": lambda call: parts.node_id,  # noqa: ARG005 - all have the same
    }


def _text_test(name: str, value: Any) -> Holds:
    holds = parse_patterns(name, value)
    if name != "software":
        return holds
    # The version may be left out.
    return lambda software: holds(software) or holds(software.partition("/")[0])


def _value_test(name: str, value: Any) -> Holds:
    return parse_numbers(name, value) if name in REQUEST_NUMBERS else parse_patterns(name, value)

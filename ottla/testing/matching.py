"""Whether a request is one of those that a rule is about; and of the others, by how little they are not.

The fields of a match are tried one after the other. A request that fails by one field alone is a near miss: it is
counted by that field with what the request had instead.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ottla.testing.fault_calls import FaultCall, FaultParts
from ottla.testing.request_units import Unit
from ottla.testing.rule_values import parse_numbers, parse_patterns
from ottla.testing.rules import NUMBER_FIELDS, REQUEST_NUMBERS, REQUEST_TEXTS, TEXT_FIELDS, Rule

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
        self.values: dict[str, dict[str, int]] = {}

    def add(self, field: str, value: object) -> None:
        self.counts[field] = self.counts.get(field, 0) + 1
        values = self.values.setdefault(field, {})
        text = repr(value)[:TEXT_KEPT]
        if text in values or len(values) < VALUES_KEPT:
            values[text] = values.get(text, 0) + 1


class Matcher:
    """The match of a rule, ready for requests of the APIs it is about."""

    def __init__(self, rule: Rule, parts: FaultParts) -> None:
        """For requests to the broker that has these parts."""
        match = rule.match
        self.near_misses = NearMisses()
        self.looked_at = 0
        self._when: Callable[[FaultCall], object] | None = match.get("when")
        self._rule = rule
        expected_peer: str = match.get("peer", "client")
        self._checks = [FieldCheck("peer", _peer, _is(expected_peer))]
        for name in TEXT_FIELDS:
            if name in match:
                self._checks.append(FieldCheck(name, _TEXTS[name], _text_test(name, match[name])))
        for name in NUMBER_FIELDS:
            if name in match:
                value = _numbers(parts)[name]
                self._checks.append(FieldCheck(name, value, parse_numbers(name, match[name])))
        self._tests: dict[str, Holds] = {
            name: _value_test(name, match[name]) for name in (*REQUEST_TEXTS, *REQUEST_NUMBERS) if name in match
        }

    def match(self, call: FaultCall, taken: set[int]) -> list[Unit] | None:
        """The units that match, but for those `taken` by other rules (by identity); an empty list where the rule is
        about the whole of a request that has none. None: not this request."""
        self.looked_at += 1
        failed: tuple[str, Any] | None = None
        for check in self._checks:
            value = check.value(call)
            if not check.holds(value):
                if failed is not None:
                    return None
                failed = check.field, value
        units, missed = self._matching_units(call)
        if missed:
            if failed is None and len(missed) == 1:
                self.near_misses.add(*missed[0])
            return None
        if failed is not None:
            self.near_misses.add(*failed)
            return None
        if self._when is not None and not self._when(call):
            self.near_misses.add("when", False)
            return None
        if taken:
            units = [unit for unit in units if id(unit) not in taken]
        return units

    def _matching_units(self, call: FaultCall) -> tuple[list[Unit], list[tuple[str, Any]]]:
        """Those for which all fields of the request hold, or by which fields it fails."""
        values, of_units = call.values, dict[str, Holds]()
        missed: list[tuple[str, Any]] = []
        for name, holds in self._tests.items():
            if name in values:
                if not holds(values[name]):
                    missed.append((name, values[name]))
            else:
                of_units[name] = holds
        if not of_units:
            return ([] if missed else call.units), missed
        found = [unit for unit in call.units if _all_hold(unit.values, of_units)]
        if not found:
            missed += _missed_by(call.units, of_units)
        return found, missed


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


def _peer(call: FaultCall) -> str:
    return call.peer


def _is(expected: str) -> Holds:
    return lambda value: value == expected


def _text_test(name: str, value: Any) -> Holds:
    holds = parse_patterns(name, value)
    if name != "software":
        return holds
    # The version may be left out.
    return lambda software: holds(software) or holds(software.partition("/")[0])


def _value_test(name: str, value: Any) -> Holds:
    holds: Holds = parse_numbers(name, value) if name in REQUEST_NUMBERS else parse_patterns(name, value)
    return lambda value: value is not None and holds(value)


def _all_hold(values: dict[str, Any], tests: dict[str, Holds]) -> bool:
    # Which partitions there are, some APIs say in the response only.
    return all(
        (name in values and (holds(values[name]) or (name == "partition" and values[name] is None)))
        for name, holds in tests.items()
    )


def _missed_by(units: Sequence[Unit], tests: dict[str, Holds]) -> list[tuple[str, Any]]:
    """The fields by which the nearest unit fails."""
    failing = [
        [(name, unit.values.get(name)) for name, holds in tests.items() if not _all_hold(unit.values, {name: holds})]
        for unit in units
    ]
    return min(failing, key=len, default=[(name, None) for name in tests])

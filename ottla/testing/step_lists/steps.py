"""What a script says: its steps, each with what is done and when, checked before the first of them runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from ottla.coordinator.facts import Fact
from ottla.testing.clock.timeline import MomentError, parse_forward, parse_moment
from ottla.testing.faults.rule_text import parse_line
from ottla.testing.faults.rule_values import RuleError, as_list, is_whole_number, nearest, parse_patterns
from ottla.testing.faults.rules import parse_rule
from ottla.testing.seeds.seed_files import parse_file
from ottla.testing.seeds.seed_schema import JsonSchema, SeedError, check
from ottla.testing.step_lists.actions import ACTIONS, check_action

GivenScript: TypeAlias = "str | Path | Sequence[Mapping[str, Any]] | Mapping[str, Any]"

TRIGGERS: Final = ("at", "after", "every")
_STEP: Final[JsonSchema] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string"},
        "at": {},
        "every": {},
        "after": {"type": ["string", "object"]},
        "times": {"type": "integer", "minimum": 1},
        "optional": {"type": "boolean"},
        "do": {"type": "object"},
    },
    "required": ["do"],
}
_STEPS: Final[JsonSchema] = {"type": "array", "items": _STEP}
_SCRIPT: Final[JsonSchema] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"steps": _STEPS},
    "required": ["steps"],
}
_AFTER_RULE: Final = ("rule", "hits")


class ScriptError(ValueError):
    """A script that cannot be understood, or that could never run: one sentence, with the step that is wrong."""


@dataclass(frozen=True, slots=True)
class Hits:
    """After so many hits of a rule."""

    rule: str
    hits: int

    def __str__(self) -> str:
        return f"after {self.rule}" if self.hits == 1 else f"after {self.hits} hits of {self.rule}"


@dataclass(frozen=True, slots=True)
class Happening:
    """After a fact of a group; its fields have to be these."""

    kind: type[Fact]
    fields: Mapping[str, Any]

    def is_met(self, fact: Fact) -> bool:
        return isinstance(fact, self.kind) and all(
            parse_patterns(name, str(wanted))(str(getattr(fact, name))) for name, wanted in self.fields.items()
        )

    def __str__(self) -> str:
        of = ", ".join(f"{name} {value}" for name, value in self.fields.items())
        return f"after {self.kind.__name__}{f' of {of}' if of else ''}"


@dataclass(frozen=True, slots=True)
class Step:
    """With none of `after_ms`, `wall_ms`, `every_ms` and `cause` it follows the step before it."""

    id: str
    when: str
    """As the script has it."""
    do: str
    given: Any
    """What is done, and with what."""
    source: Mapping[str, Any]
    """All of it, as the script has it."""
    after_ms: int | None = None
    """Since the begin of the script."""
    wall_ms: int | None = None
    every_ms: int | None = None
    cause: Hits | Happening | None = None
    times: int | None = 1
    """None: until the script ends."""
    is_optional: bool = False

    def __str__(self) -> str:
        return f"{self.id!r} ({self.when}: {self.do} {self.given})"


def parse_script(given: GivenScript) -> list[Step]:
    """A file, a list of steps, or an object with `steps`. Raises ScriptError and OSError."""
    try:
        if isinstance(given, str | Path):
            path = Path(given)
            try:
                return _parsed(parse_file(path))
            except (ScriptError, SeedError) as error:
                raise ScriptError(f"{path.name}: {error}") from None
        return _parsed(given)
    except SeedError as error:
        raise ScriptError(str(error)) from None


def check_rules(steps: Sequence[Step], known_ids: Iterable[str]) -> None:
    """The rules that steps add, and those that steps name, of which some are there already. Raises ScriptError."""
    rules = {
        step.id: parse_line(step.given) if isinstance(step.given, str) else step.given
        for step in steps
        if step.do == "fault"
    }
    known = {*known_ids, *(each["id"] for each in rules.values() if isinstance(each.get("id"), str))}
    for step in steps:
        try:
            if step.do == "fault":
                parse_rule(rules[step.id], new_id=lambda: "fault", known_ids=known)
        except RuleError as error:
            raise ScriptError(f"step {step.id!r}: do.fault: {error}") from None
        named = [("after", step.cause.rule)] if isinstance(step.cause, Hits) else []
        named += [(f"do.{step.do}", step.given)] if step.do in ("remove", "release") else []
        for where, rule_id in named:
            if rule_id not in known:
                hint = nearest(rule_id, known)
                raise ScriptError(f"step {step.id!r}: {where}: there is no rule {rule_id!r}, and no step adds it{hint}")


def _parsed(given: Any) -> list[Step]:
    if isinstance(given, Mapping):
        check(given, _SCRIPT, "")
        given = cast("Mapping[str, Any]", given)["steps"]
    check(given, _STEPS, "steps")
    steps = [_parse_step(each, number) for number, each in enumerate(as_list(given), 1)]
    if not steps:
        raise ScriptError("steps: a script without any does nothing")
    names = [each.id for each in steps]
    for name in names:
        if names.count(name) > 1:
            raise ScriptError(f"there are two steps {name!r}")
    return steps


def _parse_step(given: Mapping[str, Any], number: int) -> Step:
    name = given.get("id", f"step-{number}")
    try:
        (do, what), *more = given["do"].items() or [("", None)]
        if more or not do:
            raise ScriptError(f"do: {dict(given['do'])!r}: expected one of {', '.join(ACTIONS)}")
        check_action(str(do), what)
        times = given.get("times")
        if times is not None and "every" not in given:
            raise ScriptError("times: it is of steps with every; another one runs once")
        when = _parse_when(given, number, times)
        return Step(id=name, do=do, given=what, source=given, is_optional=given.get("optional", False), **when)
    except (ScriptError, SeedError, MomentError, RuleError) as error:
        raise ScriptError(f"step {name!r}: {error}") from None


def _parse_when(given: Mapping[str, Any], number: int, times: int | None) -> dict[str, Any]:
    named = [each for each in TRIGGERS if each in given]
    if len(named) > 1:
        raise ScriptError(f"it has {' and '.join(named)}: expected one of them")
    match named:
        case []:
            return {"when": "at once"} | {"after_ms": 0} if number == 1 else {"when": "behind the step before it"}
        case ["at"]:
            return {"when": f"at {given['at']}", **_parse_at(given["at"])}
        case ["every"]:
            every_ms = parse_forward(given["every"])
            if not every_ms:
                raise ScriptError("every: expected more than 0")
            return {"when": f"every {given['every']}", "every_ms": every_ms, "times": times}
        case _:
            cause = _parse_cause(given["after"])
            return {"when": str(cause), "cause": cause}


def _parse_at(given: Any) -> dict[str, int]:
    """A duration since the begin of the script, or a wall time of brokers."""
    if isinstance(given, str) and given[:4].isdigit() and given[4:5] == "-":
        try:
            given = datetime.fromisoformat(given)
        except ValueError:
            raise ScriptError(f"at: {given!r} is no time as ISO 8601 has it") from None
    return {"wall_ms": parse_moment(given)} if isinstance(given, datetime) else {"after_ms": parse_forward(given)}


def _parse_cause(given: str | Mapping[str, Any]) -> Hits | Happening:
    if isinstance(given, str):
        return Hits(given, 1)
    if "fact" not in given:
        for name in given:
            if name not in _AFTER_RULE:
                raise ScriptError(f"after: there is no {name!r}{nearest(str(name), (*_AFTER_RULE, 'fact'))}")
        rule, hits = given.get("rule"), given.get("hits", 1)
        if not isinstance(rule, str) or not is_whole_number(hits) or hits < 1:
            raise ScriptError(f"after: {dict(given)!r}: expected the id of a rule, and hits from 1 on; or a fact")
        return Hits(rule, hits)
    kinds = {each.__name__: each for each in _kinds(Fact)}
    kind = kinds.get(given["fact"])
    if kind is None:
        raise ScriptError(f"after: there is no fact {given['fact']!r}{nearest(str(given['fact']), kinds)}")
    wanted = {"group_id" if name == "group" else name: value for name, value in given.items() if name != "fact"}
    known = [each.name for each in fields(cast("Any", kind))]
    for name in wanted:
        if name not in known:
            raise ScriptError(f"after: {kind.__name__} has no {name!r}{nearest(name, known)}")
    return Happening(kind, wanted)


def _kinds(kind: type[Fact]) -> Iterator[type[Fact]]:
    for each in kind.__subclasses__():
        yield each
        yield from _kinds(each)

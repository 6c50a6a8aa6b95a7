"""Rules as text: a line of the command line, a file of JSON or YAML."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from ottla.testing.faults.actions import ACTIONS, BARE, OPTIONS
from ottla.testing.faults.rule_values import RuleError, as_list, nearest
from ottla.testing.faults.rules import MATCH_FIELDS, RULE_FIELDS

_OPEN, _CLOSE = "[{", "]}"
# An option that is the name of a field of the match or of an action too is written with `do.`.
_OPTIONS: Final = {option for options in OPTIONS.values() for option in options}.difference(MATCH_FIELDS, ACTIONS)


def parse_line(text: str) -> dict[str, Any]:
    """A rule in one line: `api=Fetch,topic=orders,partition=0|1,error=NOT_LEADER_OR_FOLLOWER,times=3`, or an object of
    JSON. `|` separates alternatives, and a value may be JSON. An option of an action that is a name of something else
    too is written with `do.`, as in `do.after=true`. Raises RuleError."""
    if text.lstrip().startswith("{"):
        return cast("dict[str, Any]", _parse_json(text))
    rule: dict[str, Any] = {"match": {}, "do": {}}
    for part in _split(text, ","):
        name, equals, written = part.partition("=")
        name = name.strip()
        if not equals and name not in BARE:
            raise RuleError(f"{part.strip()!r}: expected NAME=VALUE")
        value = _parse_value(written) if equals else True
        if name.startswith("do."):
            rule["do"][name.removeprefix("do.")] = value
        elif name.startswith("rewrite."):
            rule["do"].setdefault("rewrite", {})[name.removeprefix("rewrite.")] = value
        elif name in RULE_FIELDS:
            rule[name] = value
        elif name in MATCH_FIELDS:
            rule["match"][name] = value
        elif name in ACTIONS or name in _OPTIONS:
            rule["do"][name] = value
        else:
            known = [*MATCH_FIELDS, *ACTIONS, *RULE_FIELDS]
            raise RuleError(f"a rule has no {name!r}{nearest(name, known)}")
    return rule


def parse_rules(path: Path) -> list[dict[str, Any]]:
    """The rules of a file: `{"rules": […]}`, a list, or one rule. Raises RuleError and OSError."""
    text = path.read_text()
    given = _parse_yaml(path, text) if path.suffix in (".yaml", ".yml") else _parse_json(text)
    is_whole = isinstance(given, Mapping) and "rules" in given
    rules = as_list(cast("Mapping[str, Any]", given)["rules"] if is_whole else cast("Any", given))
    for each in as_list(rules):
        if not isinstance(each, Mapping):
            raise RuleError(f"{path.name}: {each!r} is no rule")
    return rules


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise RuleError(f"not JSON: {error}") from None


def _parse_yaml(path: Path, text: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise RuleError(f"{path.name}: YAML needs the package PyYAML; JSON needs nothing") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RuleError(f"{path.name}: not YAML: {error}") from None


def _parse_value(text: str) -> Any:
    text = text.strip()
    if text[:1] in ("[", "{", '"'):
        return _parse_json(text)
    if not (len(text) > 1 and text[0] == text[-1] == "/") and "|" in text:
        return [_scalar(each) for each in text.split("|")]
    return _scalar(text)


def _scalar(text: str) -> Any:
    """A number, true or false, or the text itself."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text


def _split(text: str, separator: str) -> list[str]:
    """At separators outside of brackets, quotes and regular expressions."""
    parts, depth, quote, begin = list[str](), 0, "", 0
    for index, character in enumerate(text):
        if quote:
            if character == quote and text[index - 1] != "\\":
                quote = ""
        elif character == '"' or (character == "/" and text[index - 1 : index] == "="):
            quote = character
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        elif character == separator and not depth:
            parts.append(text[begin:index])
            begin = index + 1
    return [each for each in (*parts, text[begin:]) if each.strip()]

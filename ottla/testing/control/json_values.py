"""JSON to dataclasses and back, by the types of their fields.

Bytes are `{"text": "…"}` where they are UTF-8, else `{"base64": "…"}`, and a text by itself is taken for its bytes. A
field whose name ends with `_` is one of JSON without it: Python has the word for itself.
"""

import json
import types
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, Literal, Union, cast, get_args, get_origin, get_type_hints

from ottla.testing.control.problems import Problem, wrong_value
from ottla.testing.faults.rule_values import nearest

INT64_MAX: Final = (1 << 63) - 1
SHOWN_MAX: Final = 60
DO: Final = "do"
"""The field by which a body of several kinds says which it is of: a `Literal` of one text."""
_PLAIN_NAMES: Final[Mapping[Any, str]] = {str: "a text", bool: "true or false", int: "a whole number of 64 bits"}


def parse_json(body: bytes) -> Any:
    """An empty body is an empty object. Raises Problem."""
    if not body.strip():
        return {}
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
        # Half of a surrogate pair is no text, and could not be sent back.
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise Problem(400, "not-json", f"the body is no JSON: {str(error)[:200] or 'too deep'}") from None
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def from_json(kind: Any, value: Any, field: str = "") -> Any:
    """A value of the type `kind`. Raises Problem, which names the field."""
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _instance(cast("type[Any]", kind), value, field)
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _one_of(get_args(kind), value, field)
    if origin is Literal:
        if not isinstance(value, str) or value not in get_args(kind):
            raise _unexpected(value, field, "one of " + ", ".join(get_args(kind)))
        return value
    if origin is Mapping:
        if not isinstance(value, dict):
            raise _unexpected(value, field, "an object")
        of_values = get_args(kind)[1]
        members = cast("Any", value).items()
        return {name: from_json(of_values, each, f"{field}.{name}") for name, each in members}
    if origin in (list, tuple, Sequence):
        if not isinstance(value, list):
            raise _unexpected(value, field, "an array")
        of_items = get_args(kind)[0]
        items = [from_json(of_items, each, f"{field}[{index}]") for index, each in enumerate(cast("Any", value))]
        return tuple(items) if origin is tuple else items
    return _plain(kind, value, field)


def to_json(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case bytes():
            return _shown_bytes(value)
        case Mapping():
            return {str(name): to_json(each) for name, each in cast("Any", value).items()}
        case list() | tuple():
            return [to_json(each) for each in cast("Any", value)]
        case _ if is_dataclass(value):
            return {json_name(each.name): to_json(getattr(value, each.name)) for each in fields(value)}
        case _:
            return value


def json_name(name: str) -> str:
    return name.removesuffix("_")


@cache
def types_of(kind: Any) -> dict[str, Any]:
    """Of the fields of a dataclass, by their names in JSON."""
    hints = get_type_hints(kind)
    return {json_name(each.name): hints[each.name] for each in fields(kind)}


def required(kind: Any) -> list[str]:
    """The fields of a dataclass that have no default, by their names in JSON."""
    return [
        json_name(each.name) for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING
    ]


def _instance(kind: type[Any], value: Any, field: str) -> Any:
    if not isinstance(value, dict):
        raise _unexpected(value, field, "an object")
    given = cast("dict[str, Any]", value)
    of_fields: dict[str, Any] = types_of(cast("Any", kind))
    names = {json_name(each.name): each.name for each in fields(kind)}
    for name in given:
        if name not in of_fields:
            raise wrong_value(_inner(field, name), f"there is no such field{nearest(name, of_fields)}")
    for name in required(kind):
        if name not in given:
            raise wrong_value(_inner(field, name), "it is missing")
    return kind(**{names[name]: from_json(of_fields[name], each, _inner(field, name)) for name, each in given.items()})


def _inner(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


def _one_of(kinds: tuple[Any, ...], value: Any, field: str) -> Any:
    """Of several dataclasses, the one whose `do` is that of the object; of several plain types, the one it has."""
    if value is None and type(None) in kinds:
        return None
    given = [each for each in kinds if each is not type(None)]
    if len(given) == 1:
        return from_json(given[0], value, field)
    if is_dataclass(given[0]):
        return from_json(
            _kind_of({get_args(types_of(each)[DO])[0]: each for each in given}, value, field), value, field
        )
    for kind in given:
        if type(value) is kind:
            return from_json(kind, value, field)
    raise _unexpected(value, field, " or ".join(_PLAIN_NAMES[each] for each in given))


def _kind_of(kinds: Mapping[str, Any], value: Any, field: str) -> Any:
    """Raises Problem."""
    if not isinstance(value, dict):
        raise _unexpected(value, field, "an object")
    what = cast("dict[str, Any]", value).get(DO)
    if what is None:
        raise wrong_value(_inner(field, DO), f"it is missing: one of {', '.join(kinds)}")
    if not isinstance(what, str) or what not in kinds:
        raise _unexpected(what, _inner(field, DO), f"one of {', '.join(kinds)}")
    return kinds[what]


def _plain(kind: Any, value: Any, field: str) -> Any:
    if kind is bytes:
        return _bytes(value, field)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if issubclass(kind, Enum):
        known = {each.value: each for each in kind}
        if value not in known:
            raise _unexpected(value, field, "one of " + ", ".join(map(str, known)))
        return known[value]
    is_wrong_int = kind is int and (isinstance(value, bool) or (isinstance(value, int) and abs(value) > INT64_MAX))
    if is_wrong_int or not isinstance(value, kind):
        raise _unexpected(value, field, _PLAIN_NAMES.get(kind, "a number"))
    return value


def _bytes(value: Any, field: str) -> bytes:
    match value:
        case str() | {"text": str()} if isinstance(value, str) or len(cast("dict[str, Any]", value)) == 1:
            return (value if isinstance(value, str) else str(value["text"])).encode()
        case {"base64": str(text)} if len(cast("dict[str, Any]", value)) == 1:
            try:
                return b64decode(text, validate=True)
            except ValueError:
                raise wrong_value(field, "it is no base64") from None
        case _:
            raise _unexpected(value, field, 'a text, {"text": …} or {"base64": …}')


def _shown_bytes(value: bytes) -> dict[str, str]:
    try:
        return {"text": value.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def _unexpected(value: Any, field: str, expected: str) -> Problem:
    shown = json.dumps(value, ensure_ascii=False)
    shown = shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}…"
    return wrong_value(field, f"{shown}, expected {expected}")

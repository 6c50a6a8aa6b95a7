"""The rows of the tables in docs/events.md, from the facts: their docstrings, and those of their fields."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from textwrap import dedent
from types import ModuleType, NoneType
from typing import Any, Final, get_args, get_origin, get_type_hints

from ottla.broker.events.schema import PARSED, TYPES, VERSION, written_fields
from ottla.broker.events.writing import ENVELOPE
from ottla.coordinator.facts import Fact
from ottla.protocol.errors import ErrorCode

_JSON_TYPES: Final[Mapping[type, str]] = {int: "integer", str: "string", bool: "boolean", ErrorCode: "string"}
_BY_TOPIC: Final = "object of arrays of integers"
_PARSED_TYPES: Final[Mapping[str, str]] = {"topics": "array of strings", "owned": _BY_TOPIC, "assigned": _BY_TOPIC}


def envelope_rows() -> Iterator[tuple[str, str]]:
    """Field and meaning."""
    yield "`v`", f"Version of this schema: {VERSION}."
    yield "`type`", "One of those below."
    for name, meaning in ENVELOPE.items():
        yield f"`{name}`", meaning


def type_rows() -> Iterator[tuple[str, str, str, str]]:
    """Type, fields, level in the log, meaning."""
    for kind, name in TYPES.items():
        fields = " ".join(f"`{field}`" for field in event_fields(kind))
        assert kind.__doc__ is not None, f"the fact of {name} has no docstring"
        yield f"`{name}`", fields, kind.level or "", " ".join(kind.__doc__.split())


def event_fields(kind: type[Fact]) -> tuple[str, ...]:
    """The fields of the event that is made of the fact, beyond the envelope."""
    parsed = PARSED[kind].fields if kind in PARSED else ()
    return (*written_fields(kind).values(), *parsed)


def field_rows() -> Iterator[tuple[str, str, str]]:
    """Field, type in JSON, meaning: for each field, and again for the events that give it a meaning of their own."""
    general: dict[str, tuple[str, str]] = {}
    events: dict[tuple[str, str, str], list[str]] = {}
    for kind, event in TYPES.items():
        for field, json_type, own in _fields(kind):
            in_general = general.setdefault(field, (json_type, own))
            assert own or json_type == in_general[0], f"{field} of {event} is of another type, and has no docstring"
            meaning = own or in_general[1]
            assert meaning, f"{field} of {event} is the first field of its name, and has no docstring"
            is_special = (json_type, meaning) != in_general
            events.setdefault((field, json_type, meaning), []).extend([event] if is_special else [])
    for (field, json_type, meaning), special in sorted(events.items(), key=lambda row: (row[0][0], row[1])):
        where = f" of {', '.join(f'`{event}`' for event in special)}" if special else ""
        yield f"`{field}`{where}", json_type, meaning


def _fields(kind: type[Fact]) -> Iterator[tuple[str, str, str]]:
    """Name, type in JSON and docstring of each field of the event; an empty one where it has none."""
    types, docstrings = get_type_hints(kind), _field_docstrings(kind)
    for attribute, field in written_fields(kind).items():
        yield field, _json_type(types[attribute]), docstrings.get(attribute, "")
    if kind in PARSED:
        for field, meaning in PARSED[kind].fields.items():
            yield field, _PARSED_TYPES[field], meaning


def _json_type(annotation: Any) -> str:
    if get_origin(annotation) is tuple:
        item, _ = get_args(annotation)
        kinds = [_JSON_TYPES[kind] for kind in get_args(item) or (item,) if kind is not NoneType]
        return f"array of {kinds[0]}s{' and nulls' if NoneType in get_args(item) else ''}"
    kind = next(kind for kind in get_args(annotation) or (annotation,) if kind is not NoneType)
    return "string" if issubclass(kind, StrEnum) else _JSON_TYPES[kind]


def _field_docstrings(kind: type[Fact]) -> dict[str, str]:
    """What stands below the fields of the class and of those it extends, by attribute. Python keeps no docstrings of
    fields."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        module = inspect.getmodule(each)
        assert module is not None, f"{each} was made outside of a module"
        found |= _docstrings_in(module)[each.__name__]
    return found


@cache
def _docstrings_in(module: ModuleType) -> dict[str, dict[str, str]]:
    """By class and attribute."""
    found: dict[str, dict[str, str]] = {}
    for definition in ast.parse(inspect.getsource(module)).body:
        if isinstance(definition, ast.ClassDef):
            found[definition.name] = own = {}
            for field, below in zip(definition.body, definition.body[1:], strict=False):
                match field, below:
                    case (
                        ast.AnnAssign(target=ast.Name(id=attribute)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        own[attribute] = " ".join(dedent(text).split())
                    case _:
                        pass
    return found

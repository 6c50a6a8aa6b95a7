"""Functions that write facts as JSON, one made for each kind of fact.

A busy coordinator reports thousands of facts a second, and to ask each value for its type takes longer than to write
it. So the types are asked once: from the annotations of a kind of fact the source of one long f-string is put together.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from json.encoder import encode_basestring
from typing import Any, Final, TypeAlias, get_args, get_origin

from ottla.protocol.errors import ErrorCode

ENVELOPE: Final[Mapping[str, str]] = {
    "wall_ms": "When, in milliseconds since 1970 by the broker's clock.",
    "mono_ms": "When, in milliseconds by a clock of the machine that is never set.",
    "broker": "Node id of the broker that publishes the event.",
    "run": "`wall_ms` of the broker's start.",
    "seq": "Number of the event within the run.",
}
"""What every event has, in the order of a writer's arguments, and what it means."""

Writer: TypeAlias = Callable[[Any, int, int, int, int, int], bytes]
"""(fact, wall_ms, mono_ms, broker, run, seq) → the object in UTF-8."""
More: TypeAlias = Callable[[Any], str]
"""Further fields of a fact as JSON, each after a comma."""

# `json.dumps` would make an encoder for each call.
to_json: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode
_NAMES: Final[Mapping[str, Any]] = {"text": encode_basestring, "other": to_json, "truth": ("false", "true")}


def writer_of(kind: type, head: str, names: Mapping[str, str], more: More | None = None) -> Writer:
    """The writer of facts of a dataclass `kind`: an object that begins with the inside of `head`, goes on with the
    envelope and the attributes that `names` names, those that are None left out, and ends with what `more` gives."""
    parts = [_part(names[field.name], field.type) for field in fields(kind) if field.name in names]
    envelope = [f',"{name}":{{{name}}}' for name in ENVELOPE]
    end = "{more(fact)}" if more is not None else ""
    attributes = [part.replace("VALUE", f"fact.{name}") for part, name in zip(parts, names, strict=True)]
    source = (
        f"def write(fact, {', '.join(ENVELOPE)}):\n"
        f" return f'''{{{{{head}{''.join(envelope)}{''.join(attributes)}{end}}}}}'''.encode('utf-8', 'replace')\n"
    )
    found: dict[str, Any] = {**_NAMES, "more": more}
    exec(compile(source, f"<writer of {kind.__name__}>", "exec"), found)
    writer: Writer = found["write"]
    return writer


def _part(name: str, annotation: Any) -> str:
    """A part of the f-string: the field `name` with the attribute VALUE, which is of this type."""
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    if get_origin(annotation) is tuple or type(None) not in get_args(annotation):
        return f',"{name}":{{{_written(annotation, "VALUE")}}}'
    return f"""{{'' if (value := VALUE) is None else ',"{name}":' + format({_written(kinds[0], "value")})}}"""


def _written(annotation: Any, value: str) -> str:
    """An expression for the JSON of `value`."""
    if annotation is int:
        return value
    if annotation is bool:
        return f"truth[{value}]"
    if annotation is ErrorCode:
        return f"text({value}.name)"
    if annotation is str or (isinstance(annotation, type) and issubclass(annotation, StrEnum)):
        return f"text({value})"
    return f"other({value})"

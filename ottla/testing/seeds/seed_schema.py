"""The form of a seed, as a JSON Schema, and the check of a seed against it.

docs/seed.schema.json is the same for editors. The check knows the keywords that the schema uses and no others.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from ottla.security.quotas import QUOTA_KEYS
from ottla.testing.faults.rule_values import nearest

JsonSchema = Mapping[str, Any]

PAYLOADS: Final = ("value", "json", "base64", "file")
_TEXT: Final = {"type": "string"}
_TEXT_OR_NULL: Final = {"type": ["string", "null"]}
_COUNT: Final = {"type": "integer", "minimum": 1}
_NUMBER: Final = {"type": "integer", "minimum": 0}
_SCALAR: Final = {"type": ["string", "number", "boolean"]}


def _object(properties: JsonSchema, *, required: Iterable[str] = (), description: str = "") -> JsonSchema:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    return schema | ({"description": description} if description else {})


def _map_of(schema: JsonSchema, description: str) -> JsonSchema:
    return {"type": "object", "additionalProperties": schema, "description": description}


def _list_of(schema: JsonSchema, description: str) -> JsonSchema:
    return {"type": "array", "items": schema, "description": description}


_RECORD_FIELDS: Final[JsonSchema] = {
    "key": _TEXT_OR_NULL,
    "value": _TEXT_OR_NULL | {"description": "Text, as UTF-8; null is a tombstone."},
    "json": {"description": "Any value, written as compact JSON."},
    "base64": _TEXT | {"description": "The bytes of the value."},
    "file": _TEXT | {"description": "The file that has the value, beside the seed."},
    "headers": _map_of(_TEXT, "Names and texts."),
    "timestamp": _NUMBER | {"description": "Milliseconds since 1970; without it, now."},
    "partition": _NUMBER | {"description": "Without it, the key chooses."},
    "count": _COUNT | {"description": "So many records; {n} in texts is 0, 1, 2, …"},
}
RECORD: Final = _object(_RECORD_FIELDS, description=f"One of {', '.join(PAYLOADS)}, and what goes with it.")
LINE: Final = _object({"topic": _TEXT, **_RECORD_FIELDS}, required=["topic"])
"""Of a seed of JSON lines, each of which is a record."""
_TOPIC: Final = _object(
    {
        "partitions": _COUNT,
        "replication_factor": _COUNT,
        "configs": _map_of(_SCALAR, "Kafka's configs of topics."),
        "records": _list_of(RECORD, "In their order."),
    }
)
_GROUP: Final = _object(
    {
        "offsets": _map_of(
            _map_of({"type": ["integer", "string"]}, "Partitions, and the offset each, or start, or end."),
            "Topics.",
        )
    }
)
_USER: Final = _object(
    {
        "password": _TEXT,
        "mechanism": {"enum": ["SCRAM-SHA-256", "SCRAM-SHA-512"]},
        "iterations": _COUNT,
    },
    required=["password"],
)
_ACL: Final = _object(
    {
        "principal": _TEXT | {"description": "User:NAME."},
        "host": _TEXT,
        "operation": _TEXT | {"description": "As kafka-acls has it: read, write, describe, …"},
        "permission": {"enum": ["allow", "deny"]},
        "resource": {"enum": ["topic", "group", "cluster", "transactional_id"]},
        "name": _TEXT,
        "pattern": {"enum": ["literal", "prefixed"]},
    },
    required=["principal", "operation", "resource"],
)
_QUOTA: Final = _object(
    {
        **{name: _TEXT_OR_NULL | {"description": "null: the default."} for name in ("user", "client_id", "ip")},
        **{key: {"type": "number", "minimum": 0} for key in QUOTA_KEYS},
    }
)
SEED: Final[JsonSchema] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "What a broker of Ottla's testing kit has before a test",
    **_object(
        {
            "topics": _map_of({"anyOf": [_COUNT, _TOPIC]}, "By name: how many partitions, or more than that."),
            "groups": _map_of(_GROUP, "By id: what they have committed."),
            "users": _map_of({"anyOf": [_TEXT, _USER]}, "By name: the password for SCRAM, or more than that."),
            "acls": _list_of(_ACL, "They need an authorizer."),
            "quotas": _list_of(_QUOTA, "An entity and its limits."),
            "rules": _list_of({"type": ["object", "string"]}, "Of faults: docs/faults.md."),
        }
    ),
}

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (Mapping,),
    "array": (list, tuple),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


class SeedError(Exception):
    """A seed that cannot be understood, or that the broker does not take: one sentence, with the path to it."""


def check(value: Any, schema: JsonSchema, path: str) -> None:
    """Raises SeedError for the first thing that the schema does not allow."""
    if "anyOf" in schema:
        # They differ by type.
        fitting = [each for each in schema["anyOf"] if _is_of_type(value, each)]
        schema = fitting[0] if fitting else {"type": [each["type"] for each in schema["anyOf"]]}
    if not _is_of_type(value, schema):
        raise SeedError(f"{path or 'the whole'}: {value!r}: expected {_named(schema['type'])}")
    if value not in schema.get("enum", (value,)):
        raise SeedError(f"{path}: {value!r}: expected one of {', '.join(schema['enum'])}")
    if "minimum" in schema and value < schema["minimum"]:
        raise SeedError(f"{path}: {value!r}: expected at least {schema['minimum']}")
    if isinstance(value, Mapping):
        _check_object(cast("Mapping[str, Any]", value), schema, path)
    elif "items" in schema:
        for index, each in enumerate(value):
            check(each, schema["items"], f"{path}[{index}]")


def _check_object(value: Mapping[str, Any], schema: JsonSchema, path: str) -> None:
    properties: JsonSchema = schema.get("properties", {})
    others = schema.get("additionalProperties", {})
    for name, each in value.items():
        inner = f"{path}.{name}" if path else str(name)
        if name in properties:
            check(each, properties[name], inner)
        elif others is False:
            raise SeedError(f"{inner}: there is no such key{nearest(str(name), properties)}")
        else:
            check(each, others, inner)
    for name in schema.get("required", ()):
        if name not in value:
            raise SeedError(f"{path}: {name!r} is missing")


def _is_of_type(value: object, schema: JsonSchema) -> bool:
    if "type" not in schema:
        return True
    names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _TYPES[name]) for name in names)


def _named(types: str | list[str]) -> str:
    return types if isinstance(types, str) else " or ".join(types)

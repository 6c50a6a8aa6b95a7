"""The table of routes as OpenAPI 3.1, from the dataclasses of its bodies and answers."""

import inspect
import types
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from typing import Any, Final, Literal, Union, get_args, get_origin

from ottla.testing.control.access import JSON
from ottla.testing.control.json_values import required, types_of
from ottla.testing.control.problems import PROBLEM_JSON
from ottla.testing.control.questions import EmptyBody
from ottla.testing.control.router import Row

OPENAPI_VERSION: Final = "3.1.0"
_BYTES: Final[Mapping[str, Any]] = {
    "description": "UTF-8, or base64; a text by itself is taken for its bytes.",
    "oneOf": [
        {"type": "string"},
        {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        {"type": "object", "properties": {"base64": {"type": "string"}}, "required": ["base64"]},
    ],
}
_PROBLEM: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "RFC 9457.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "field": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail"],
}
_PLAIN: Final[Mapping[Any, str]] = {str: "string", bool: "boolean", int: "integer", float: "number"}


def openapi_document(rows: Sequence[Row]) -> dict[str, Any]:
    schemas: dict[str, Any] = {"Problem": dict(_PROBLEM)}
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row, schemas)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {"title": "Ottla's control of brokers in testing mode", "version": "1"},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(row: Row, schemas: dict[str, Any]) -> dict[str, Any]:
    names = [part[1:-1] for part in row.path.split("/") if part.startswith("{")]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
    ]
    for each in row.query:
        schema = {"type": "integer" if each.is_number else "string"}
        default = {} if each.default is None else {"default": each.default}
        parameters.append({"name": each.name, "in": "query", "description": each.help, "schema": schema | default})
    operation: dict[str, Any] = {"summary": row.summary}
    if parameters:
        operation["parameters"] = parameters
    if row.body is not EmptyBody:
        operation["requestBody"] = {"content": {JSON: {"schema": _schema(row.body, schemas)}}}
    problem = {"content": {PROBLEM_JSON: {"schema": _reference("Problem")}}}
    if row.handler is None:
        return operation | {"responses": {"501": {"description": "Not served.", **problem}}}
    content = {row.media_type: {} if row.answer is None else {"schema": _schema(row.answer, schemas)}}
    responses = {str(row.status): {"description": row.summary, "content": content}}
    return operation | {"responses": {**responses, "default": {"description": "A problem.", **problem}}}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return {}
    if kind is bytes:
        return dict(_BYTES)
    if is_dataclass(kind):
        return _described(kind, schemas)
    if origin in (Union, types.UnionType):
        return {"anyOf": [{"type": "null"} if each is type(None) else _schema(each, schemas) for each in arguments]}
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1], schemas)}
    if origin is not None:
        return {"type": "array", "items": _schema(arguments[0], schemas)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"type": "string", "enum": [each.value for each in kind]}
    return {"type": _PLAIN[kind]}


def _described(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    name: str = kind.__name__
    if name not in schemas:
        schemas[name] = {}
        properties = {field: _schema(each, schemas) for field, each in types_of(kind).items()}
        described: dict[str, Any] = {"type": "object", "properties": properties, "required": required(kind)}
        text = inspect.getdoc(kind) or ""
        if not text.startswith(f"{name}("):
            described["description"] = text
        schemas[name] = described
    return _reference(name)

"""The OpenAPI document: every row, every reference, and answers that are as it says."""

import re
from typing import Any

from ottla.testing.control.openapi import openapi_document
from ottla.testing.control.routes import ROWS
from tests.control.asking import Asker

DOCUMENT = openapi_document(ROWS)
PYTHON_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "object": dict,
    "array": list,
}


def test_every_row_is_an_operation() -> None:
    operations = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}

    assert operations == {(row.method, row.path) for row in ROWS}
    assert len(operations) == len(ROWS)


def test_every_reference_is_there() -> None:
    referred = set(re.findall(r"#/components/schemas/(\w+)", str(DOCUMENT)))

    assert referred == set(DOCUMENT["components"]["schemas"])


def test_paths_name_their_parameters() -> None:
    for path, methods in DOCUMENT["paths"].items():
        for operation in methods.values():
            named = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path))


def test_body_of_a_wait_is_described() -> None:
    schema = DOCUMENT["components"]["schemas"]["WaitBody"]

    assert schema["required"] == ["for"]
    assert schema["properties"]["members"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}


def test_bodies_of_several_kinds_are_described() -> None:
    body = DOCUMENT["paths"]["/v1/disks/{node}"]["put"]["requestBody"]["content"]["application/json"]["schema"]
    names = [each["$ref"].rpartition("/")[2] for each in body["anyOf"]]

    assert names == ["DiskFull", "DiskSlow", "DiskFail", "DiskStall", "DiskCorrupt", "DiskTear", "DiskLose", "DiskHeal"]
    assert DOCUMENT["components"]["schemas"]["DiskStall"]["properties"]["do"] == {"type": "string", "enum": ["stall"]}


def test_file_of_a_capture_is_no_json() -> None:
    assert list(DOCUMENT["paths"]["/v1/wire/capture"]["get"]["responses"]["200"]["content"]) == [
        "application/octet-stream"
    ]
    assert list(DOCUMENT["paths"]["/v1/events"]["get"]["responses"]["200"]["content"]) == ["application/x-ndjson"]


def test_answers_have_the_members_that_are_described(asker: Asker) -> None:
    asker.post("/v1/topics", {"name": "orders"})
    asker.post("/v1/topics/orders/records", {"records": [{"value": "a"}]})
    asker.post("/v1/faults", "api=Fetch,delay=1")
    asker.ask("PUT", "/v1/links", {"do": "cut", "from": "clients", "to": 0})
    asker.ask("PUT", "/v1/disks/0", {"do": "fail", "operation": "read", "match": "none/*"})
    paths = ["/v1", "/v1/topics/orders", "/v1/topics/orders/records", "/v1/faults", "/v1/wire", "/v1/report"]
    for path in (*paths, "/v1/links", "/v1/disks", "/v1/coverage"):
        pattern = path.replace("orders", "{topic}")
        (described,) = DOCUMENT["paths"][pattern]["get"]["responses"]["200"]["content"].values()

        check(described["schema"], asker.get(path), path)


def check(schema: dict[str, Any], value: Any, where: str) -> None:
    """As far as the document uses JSON Schema."""
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema and value is not None:
        kinds = [each for each in schema["anyOf"] if each.get("type") != "null"]
        fitting = [each for each in kinds if "type" not in each or isinstance(value, PYTHON_TYPES[each["type"]])]
        assert fitting, where
        check(fitting[0], value, where)
    elif schema.get("type") == "object" and "properties" in schema:
        assert set(value) == set(schema["properties"]), where
        for name, each in value.items():
            check(schema["properties"][name], each, f"{where}.{name}")
    elif schema.get("type") == "array":
        for each in value:
            check(schema["items"], each, f"{where}[]")
    elif "type" in schema:
        assert isinstance(value, PYTHON_TYPES[schema["type"]]), where

"""The columns that the pipeline reads of events are fields of facts, of the same types; read as text, without Spark."""

import re
from pathlib import Path

from ottla.broker.events.writing import ENVELOPE
from ottla.cli.event_reference import field_rows

SOURCE = Path(__file__).parents[2] / "ottla" / "pipeline" / "events.py"
SPARK_TYPES = {
    "INT": "integer",
    "BIGINT": "integer",
    "STRING": "string",
    "BOOLEAN": "boolean",
    "ARRAY<INT>": "array of integers",
    "ARRAY<BIGINT>": "array of integers",
    "ARRAY<STRING>": "array of strings",
    "{_PARTITIONS}": "object of arrays of integers",
}
# Kept as its JSON: of one partition in some events, of a list in others.
AS_JSON = {"partition"}


def columns() -> dict[str, str]:
    """Spark's type of each column."""
    schema = SOURCE.read_text().partition("SCHEMA = ")[2].partition('"""')[0]
    parts = ", ".join(re.findall(r'"(.+)"', schema)[1:])
    return dict(re.findall(r"(\w+) ([A-Z{_}]+(?:<\w+>)?)(?:,|$)", parts))


def fields() -> dict[str, set[str]]:
    """The types in JSON of each field."""
    found: dict[str, set[str]] = {"v": {"integer"}, "type": {"string"}, **{name: {"integer"} for name in ENVELOPE}}
    for name, json_type, _ in field_rows():
        found.setdefault(name.split("`")[1], set()).add(json_type.removesuffix(" and nulls"))
    return found


def test_columns_of_the_pipeline_are_fields_of_events() -> None:
    present = fields()
    read = columns()

    assert len(read) > 40
    assert set(read) <= set(present)
    wrong = {
        name: (spark_type, present[name])
        for name, spark_type in read.items()
        if name not in AS_JSON and present[name] != {SPARK_TYPES[spark_type]}
    }
    assert not wrong

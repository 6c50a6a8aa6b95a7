import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.records import JsonLine, ProducerRecord, bytes_as_text, parse_format, record_from_json

ANYTHING = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace"))


def record(**fields: object) -> SimpleNamespace:
    defaults = {"topic": "t", "partition": 2, "offset": 7, "timestamp": 0, "key": b"k", "value": b"v", "headers": ()}
    return SimpleNamespace(**{**defaults, **fields})


@given(ANYTHING, ANYTHING, st.lists(st.tuples(st.text(max_size=5), ANYTHING), max_size=3))
def test_what_consume_writes_produce_reads(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = JsonLine()(record(key=key, value=value, headers=tuple(headers), timestamp=5))

    assert record_from_json(line.encode()) == ProducerRecord(value, key, tuple(headers), partition=2, timestamp_ms=5)


def test_a_value_that_is_json_itself_is_kept_as_json() -> None:
    assert record_from_json(b'{"value": {"a": [1, "\xc3\xa9"]}}').value == '{"a": [1, "é"]}'.encode()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"hello", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b"{}", "has no value"),
        (b'{"value": {"base64": "?"}}', "has a value that is not base64"),
        (b'{"value": 1, "headers": {"a": "b"}}', "has headers that are not a list"),
        (b'{"value": 1, "headers": [["a"]]}', "has headers that are not a list"),
        (b'{"value": 1, "partition": -1}', "has a partition that is not a number from 0"),
        (b'{"value": 1, "partition": true}', "has a partition that is not a number from 0"),
        (b'{"value": 1, "timestamp": "now"}', "has a timestamp that is not a number from 0"),
    ],
)
def test_lines_that_are_no_records_are_refused(line: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        record_from_json(line)


def test_bytes_that_are_no_text_are_written_as_base64() -> None:
    assert [bytes_as_text(b"\xff\x00"), bytes_as_text("é".encode()), bytes_as_text(None)] == ["base64:/wA=", "é", ""]


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{value}", "v"),
        (r"{key}\t{value}", "k\tv"),
        ("{topic}-{partition}@{offset}", "t-2@7"),
        ("{{{timestamp}}}", "{1970-01-01T00:00:00.000+00:00}"),
        ("{headers}", "a=1,b="),
        ("", ""),
    ],
)
def test_formats(template: str, line: str) -> None:
    assert parse_format(template)(record(headers=(("a", b"1"), ("b", None)))) == line


@pytest.mark.parametrize("template", ["{", "{0}", "{}", "{value!r}", "{value:>5}", "{password}", "{value.x}"])
def test_formats_with_anything_else_are_refused(template: str) -> None:
    with pytest.raises(ValueError, match="format"):
        parse_format(template)


@pytest.mark.parametrize("timestamp", [-1, 2**62, -(2**62)])
def test_a_timestamp_no_calendar_holds_is_a_number(timestamp: int) -> None:
    text = parse_format("{timestamp}")(record(timestamp=timestamp))

    assert text in (str(timestamp), "1969-12-31T23:59:59.999+00:00")


def test_json_lines_name_every_field() -> None:
    assert json.loads(JsonLine()(record())) == {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp": 0,
        "key": "k",
        "value": "v",
        "headers": [],
    }

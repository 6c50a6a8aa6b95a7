"""JSON to dataclasses and back: what is refused, and by which field."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.testing.control.json_values import from_json, parse_json, to_json
from ottla.testing.control.problems import Problem
from ottla.testing.control.questions import NewRecords, NewTopicBody, WaitBody

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@dataclass(frozen=True)
class Inner:
    name: str
    value: bytes | None = None


@dataclass(frozen=True)
class Outer:
    for_: Literal["a", "b"]
    inners: Sequence[Inner] = ()
    counts: Mapping[str, int] | None = None
    is_there: bool = False
    rest: Any = None


def test_object_is_read_and_written_by_the_types_of_its_fields() -> None:
    value = {
        "for": "a",
        "inners": [{"name": "x", "value": {"text": "é"}}, {"name": "y", "value": {"base64": "/w=="}}],
        "counts": {"0": 3},
        "is_there": True,
        "rest": [1, {"a": None}],
    }

    made = from_json(Outer, value)

    inners = [Inner("x", "é".encode()), Inner("y", b"\xff")]
    assert made == Outer("a", inners, {"0": 3}, True, [1, {"a": None}])
    assert to_json(made) == value


@dataclass(frozen=True)
class Cut:
    do: Literal["cut"]
    at: int | str


@dataclass(frozen=True)
class Heal:
    do: Literal["heal"]
    times: int | None = 1


@pytest.mark.parametrize("made", [Cut("cut", 5), Cut("cut", "store"), Heal("heal"), Heal("heal", None)])
def test_body_of_several_kinds_is_the_one_that_it_says(made: Cut | Heal) -> None:
    assert from_json(Cut | Heal, to_json(made)) == made


@pytest.mark.parametrize(
    ("value", "field", "says"),
    [
        (None, None, "null, expected an object"),
        ({}, "do", "do: it is missing: one of cut, heal"),
        ({"do": ["cut"]}, "do", 'do: ["cut"], expected one of cut, heal'),
        ({"do": "hael"}, "do", 'do: "hael", expected one of cut, heal'),
        ({"do": "cut"}, "at", "at: it is missing"),
        ({"do": "cut", "at": None}, "at", "at: null, expected a whole number of 64 bits or a text"),
        ({"do": "cut", "at": False}, "at", "at: false, expected a whole number of 64 bits or a text"),
        ({"do": "cut", "at": 1 << 63}, "at", "expected a whole number of 64 bits"),
        ({"do": "heal", "at": 1}, "at", "at: there is no such field"),
    ],
)
def test_body_of_no_kind_is_named_by_its_field(value: Any, field: str | None, says: str) -> None:
    with pytest.raises(Problem) as caught:
        from_json(Cut | Heal, value)

    assert (caught.value.status, caught.value.field) == (400, field)
    assert says in caught.value.detail


def test_text_by_itself_is_its_bytes() -> None:
    assert from_json(bytes, "book") == b"book"


@pytest.mark.parametrize(
    ("value", "field", "says"),
    [
        ([], None, "[], expected an object"),
        ({}, "for", "for: it is missing"),
        ({"for": "c"}, "for", 'for: "c", expected one of a, b'),
        ({"for": ["a"]}, "for", 'for: ["a"], expected one of a, b'),
        ({"for": "a", "inner": []}, "inner", "did you mean 'inners'?"),
        ({"for": "a", "inners": {}}, "inners", "inners: {}, expected an array"),
        ({"for": "a", "inners": [{"name": 1}]}, "inners[0].name", "inners[0].name: 1, expected a text"),
        ({"for": "a", "inners": [{"name": "", "value": {"base64": "%"}}]}, "inners[0].value", "it is no base64"),
        ({"for": "a", "inners": [{"name": "", "value": {"text": "", "base64": ""}}]}, "inners[0].value", "expected"),
        ({"for": "a", "counts": {"0": True}}, "counts.0", "expected a whole number of 64 bits"),
        ({"for": "a", "counts": {"0": 1 << 63}}, "counts.0", "expected a whole number of 64 bits"),
        ({"for": "a", "counts": {"0": 1.5}}, "counts.0", "counts.0: 1.5, expected a whole number"),
        ({"for": "a", "is_there": 1}, "is_there", "is_there: 1, expected true or false"),
    ],
)
def test_wrong_value_is_named_by_its_field(value: Any, field: str | None, says: str) -> None:
    with pytest.raises(Problem) as caught:
        from_json(Outer, value)

    assert (caught.value.status, caught.value.field) == (400, field)
    assert says in caught.value.detail


@pytest.mark.parametrize(
    "body", [b"{", b"\xff", b'"\\ud800"', b"NaN", b"[Infinity]", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000]
)
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(Problem) as caught:
        parse_json(body)

    assert caught.value.kind == "not-json"


def test_empty_body_is_an_empty_object() -> None:
    assert (parse_json(b""), parse_json(b" \n")) == ({}, {})


@given(JSON_VALUES, st.sampled_from([Outer, NewRecords, NewTopicBody, WaitBody]))
def test_any_value_is_read_or_refused(value: Any, kind: type) -> None:
    with suppress(Problem):
        assert isinstance(from_json(kind, value), kind)


@given(st.binary())
def test_any_bytes_are_json_or_refused(body: bytes) -> None:
    with suppress(Problem):
        parse_json(body)


@given(st.none() | st.binary())
def test_bytes_come_back_as_they_went(value: bytes | None) -> None:
    assert from_json(Inner, to_json(Inner("x", value))) == Inner("x", value)

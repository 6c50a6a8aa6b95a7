"""The syntax of .properties files, case by case as java.util.Properties reads them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.config.options import ConfigError
from ottla.broker.config.properties import parse_properties, parse_setting


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1\nb = 2\n  c:3\nd 4\ne", {"a": "1", "b": "2", "c": "3", "d": "4", "e": ""}),
        ("# no\n! no\n\n  # no\na=1", {"a": "1"}),
        ("a=1,\\\n   2,\\\n   3\nb=2", {"a": "1,2,3", "b": "2"}),
        ("a=x\\\\\nb=2", {"a": "x\\", "b": "2"}),
        ("a=1\na=2", {"a": "2"}),
        ("a\\=b=c\\:d", {"a=b": "c:d"}),
        ("a=\\u00e4\\t\\n", {"a": "ä\t\n"}),
        ("a==b", {"a": "=b"}),
        ("a = b = c ", {"a": "b = c "}),
        ("a=1\r\nb=2\r\n", {"a": "1", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("", {}),
    ],
)
def test_a_file_is_read_as_java_reads_it(text: str, values: dict[str, str]) -> None:
    assert parse_properties(text) == values


def test_a_broken_escape_is_named() -> None:
    with pytest.raises(ConfigError, match=r"\\u00g1"):
        parse_properties("a=\\u00g1")


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse_properties(text)


def test_a_setting_is_key_and_value() -> None:
    assert parse_setting(" a = b=c ") == ("a", "b=c")


@pytest.mark.parametrize("setting", ["a", "=b", "", " =b"])
def test_what_is_no_setting_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        parse_setting(setting)

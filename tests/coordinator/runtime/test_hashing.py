"""Where a group lives (G03, §4.1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.runtime.hashing import java_hash, java_length, partition_for


# Vectors of docs/semantics §4.1.2.
@pytest.mark.parametrize(
    ("group_id", "hash_code", "partition"),
    [
        ("", 0, 0),
        ("a", 97, 47),
        ("test", 3556498, 48),
        ("my-group", -1906497762, 12),
        ("group-0", 293427298, 48),
        ("grüpp", 98764593, 43),
        ("😀", 1772899, 49),
        ("polygenelubricants", -2147483648, 0),
    ],
)
def test_the_hash_is_javas_over_utf16_units(group_id: str, hash_code: int, partition: int) -> None:
    """G03, T-27"""
    assert java_hash(group_id) == hash_code
    assert partition_for(group_id, 50) == partition


@pytest.mark.parametrize("length", [257, 258, 259, 260, 511, 512, 513, 1024, 1025, 30_000])
def test_long_names_hash_as_a_loop_over_their_units_does(length: int) -> None:
    text = "\uffff" + "".join(chr(1 + number * 7919 % 0xD000) for number in range(length - 2)) + "\uffff"
    expected = 0
    for unit in text:
        expected = (31 * expected + ord(unit)) & 0xFFFF_FFFF

    assert java_hash(text) & 0xFFFF_FFFF == expected


@given(st.text(), st.integers(1, 1000))
def test_every_group_has_a_partition(group_id: str, partitions: int) -> None:
    assert 0 <= partition_for(group_id, partitions) < partitions


def test_a_lone_surrogate_has_a_hash_too() -> None:
    assert java_hash("\ud83d") == 0xD83D


def test_texts_are_as_long_as_java_says() -> None:
    assert [java_length(text) for text in ("", "grüpp", "😀", "\ud83d")] == [0, 5, 2, 1]


@pytest.mark.parametrize("length", [256, 257, 300, 511, 512, 513, 30_000])
def test_hash_of_long_text_is_the_one_of_the_loop(length: int) -> None:
    text = "".join(chr(1 + 7919 * index % 0xD7FF) for index in range(length - 1)) + "\U0001f600"
    expected = 0
    for high, low in zip(*[iter(text.encode("utf-16-be"))] * 2, strict=True):
        expected = (31 * expected + (high << 8 | low)) & 0xFFFF_FFFF

    assert java_hash(text) & 0xFFFF_FFFF == expected

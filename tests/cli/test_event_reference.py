"""The tables of docs/events.md say what the facts say."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from ottla.broker.events.schema import TYPES
from ottla.cli import event_reference
from ottla.cli.event_reference import event_fields, field_rows, type_rows
from ottla.coordinator.facts import Fact, MemberRejoined


@dataclass(frozen=True, slots=True)
class FirstFact(Fact):
    """One."""

    event: ClassVar = "first"

    size: int
    """How large
    it is."""
    name: str | None
    """Its name."""


@dataclass(frozen=True, slots=True)
class SecondFact(Fact):
    """Two."""

    event: ClassVar = "second"

    size: tuple[int | None, ...]
    """All sizes."""
    name: str


@dataclass(frozen=True, slots=True)
class UndocumentedFact(Fact):
    """Three."""

    event: ClassVar = "third"

    size: bool
    secret: int


def rows_of(monkeypatch: pytest.MonkeyPatch, *kinds: type[Fact]) -> list[tuple[str, str, str]]:
    monkeypatch.setattr(event_reference, "TYPES", {kind: kind.event for kind in kinds})
    return list(field_rows())


def test_every_event_and_field_has_a_row() -> None:
    fields = {field.split(" of ")[0] for field, _, _ in field_rows()}

    assert [row[0] for row in type_rows()] == [f"`{event}`" for event in TYPES.values()]
    assert fields == {f"`{field}`" for kind in TYPES for field in event_fields(kind)}


def test_parsed_fields_stand_for_the_bytes_of_consumers() -> None:
    assert event_fields(MemberRejoined)[-3:] == ("join_phase_ms", "topics", "owned")
    assert "subscription" not in event_fields(MemberRejoined)


def test_field_means_the_same_where_no_docstring_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows_of(monkeypatch, FirstFact, SecondFact) == [
        ("`name`", "string", "Its name."),
        ("`size`", "integer", "How large it is."),
        ("`size` of `second`", "array of integers and nulls", "All sizes."),
    ]


def test_undocumented_field_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="size of third is the first field of its name, and has no docstring"):
        rows_of(monkeypatch, UndocumentedFact)
    with pytest.raises(AssertionError, match="size of third is of another type, and has no docstring"):
        rows_of(monkeypatch, FirstFact, UndocumentedFact)

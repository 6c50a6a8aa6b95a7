"""Facts as JSON by writers that are made for them."""

import json
from dataclasses import dataclass
from enum import StrEnum

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.events.writing import writer_of
from ottla.protocol.errors import ErrorCode


class Colour(StrEnum):
    RED = 'a "deep" red'


@dataclass(frozen=True)
class Everything:
    number: int
    text: str
    truth: bool
    colour: Colour
    error: ErrorCode
    numbers: tuple[int, ...]
    gaps: tuple[int | None, ...]
    maybe_number: int | None
    maybe_text: str | None
    unnamed: bytes


NAMES = {name: name for name in Everything.__dataclass_fields__ if name != "unnamed"} | {"number": "renamed"}
WRITE = writer_of(Everything, '"v":1', NAMES)
ENVELOPE = {"wall_ms": 1, "mono_ms": 2, "broker": 3, "run": 4, "seq": 5}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    st.builds(
        Everything,
        number=st.integers(),
        text=TEXTS,
        maybe_number=st.none() | st.integers(),
        maybe_text=st.none() | TEXTS,
        unnamed=st.binary(),
    )
)
def test_what_is_read_is_what_was_written(fact: Everything) -> None:
    maybe = {"maybe_number": fact.maybe_number, "maybe_text": fact.maybe_text}

    assert json.loads(WRITE(fact, *ENVELOPE.values())) == {
        "v": 1,
        **ENVELOPE,
        "renamed": fact.number,
        "text": fact.text,
        "truth": fact.truth,
        "colour": 'a "deep" red',
        "error": fact.error.name,
        "numbers": list(fact.numbers),
        "gaps": list(fact.gaps),
        **{name: value for name, value in maybe.items() if value is not None},
    }


def test_a_fact_without_attributes_has_its_envelope() -> None:
    @dataclass
    class Nothing:
        pass

    write = writer_of(Nothing, '"v":1', {}, more=lambda _: ',"more":true')
    assert write(Nothing(), 1, 2, 3, 4, 5) == b'{"v":1,"wall_ms":1,"mono_ms":2,"broker":3,"run":4,"seq":5,"more":true}'

"""docs/faults.md names every field and every action, and its examples work."""

from pathlib import Path

import pytest

from ottla.testing.faults.actions import ACTIONS
from ottla.testing.faults.rule_text import parse_line, parse_rules
from ottla.testing.faults.rules import MATCH_FIELDS, parse_rule
from tests.docs.pasting import block, run_python

DOCUMENT = Path(__file__).parents[2] / "docs" / "faults.md"


@pytest.mark.parametrize("name", [*MATCH_FIELDS, *ACTIONS])
def test_every_field_and_action_is_documented(name: str) -> None:
    written = f"Call({'function'})" if name == "call" else name
    text = DOCUMENT.read_text()

    assert f"`{written}`" in text or f'"{written}"' in text


def test_rules_of_the_document_are_rules(tmp_path: Path) -> None:
    text = DOCUMENT.read_text()
    (tmp_path / "rules.json").write_text(text.partition("```json\n")[2].partition("```")[0])
    line = text.partition("The same in one line: `")[2].partition("`")[0]

    first, second = (parse_rule(each, new_id=lambda: "new") for each in parse_rules(tmp_path / "rules.json"))
    by_line = parse_rule(parse_line(line), new_id=lambda: "new")

    assert (by_line.match, by_line.do, by_line.times) == (first.match, first.do, first.times)
    assert second.times == 20


@pytest.mark.parametrize(
    ("start", "printed"),
    [
        ("from confluent_kafka import Consumer, Producer", "paid 2 times"),
        ("import threading", ""),
        ("from confluent_kafka import Producer", "matched all but topic: 'orders' ≠ 'order'"),
    ],
)
def test_example_of_the_document_runs(tmp_path: Path, start: str, printed: str) -> None:
    program = tmp_path / "example.py"
    program.write_text(block("docs/faults.md", start).text)

    assert printed in run_python(program)

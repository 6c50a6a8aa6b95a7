"""Every rule, scenario, invariant, seeded bug and decision that code, tests and documents cite is in the repository."""

from collections import Counter

import pytest

from tests.docs.references import RULES, all_anchors, anchors_in, citable, references_in, texts, unresolved

ANCHORS = {
    "docs/semantics/wire.md": ["1", "1.7", "1.7.2", "13.6.2", "13.6.2a", "13.6.2d", "20"],
    "docs/scenarios.md": ["G08", "T01", "TX13", "TK05", "SEC05", "I-3", "T-21", "TT-5", "KT-5"],
    "docs/security.md": ["4", "4.1"],
}
KNOWN = {"decision 0009", "docs/events.md"}


def complaints_about(text: str, path: str = "ottla/example.py") -> list[str]:
    return unresolved(references_in(path, text), ANCHORS, KNOWN)


def test_every_reference_resolves() -> None:
    references = [reference for path, text in texts() for reference in references_in(path, text)]

    complaints = unresolved(references, all_anchors(), citable())

    assert len(references) > 1000
    assert not complaints, "\n".join(complaints)


def test_every_number_is_defined_once() -> None:
    rules = Counter(
        anchor
        for document, anchors in all_anchors().items()
        if document.removesuffix(".md").startswith(RULES)
        for anchor in anchors
    )
    assert [anchor for anchor, count in rules.items() if count > 1] == []


@pytest.mark.parametrize(
    "text",
    [
        "(§1.7.2)",
        "§13.6.2 d. and §13.6.2 (a)",
        "§13.6.2 a-d",
        "§1.7.2 a table without lettered rows",
        "§1.7-§20, §1.7–1.7.2",
        "G08–G08, T01, I-3: x, T-21-fetch",
        "TX13, TT-5",
        "TK05, KT-5",
        "def test_g08_t21_it_works() -> None:",
        "def test_tx13_it_works() -> None:",
        "def test_tk05_it_works() -> None:",
        "SEC05, def test_sec05_it_works() -> None:",
        "def test_t01_i3_it_works():",
        "docs/security §4.1",
        "docs/semantics §1.7",
        "docs/decisions/0009, decision 0009, docs/events.md",
        "RUF001 E501 LZ4 KIP-966 UTF-8 §",
    ],
)
def test_references_that_resolve(text: str) -> None:
    assert complaints_about(text) == []


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("(§1.7.3)", "§1.7.3"),
        ("§99 of something", "§99"),
        ("§13.6.2 b", "§13.6.2 b"),
        ("§13.6.2 a-c", "§13.6.2 a-c"),
        ("§1.7–1.8", "§1.7–1.8"),
        ("§4.1", "§4.1"),
        ("docs/security §1.7", "docs/security §1.7"),
        ("docs/nowhere §4", "docs/nowhere §4"),
        ("KAFKA_RULES §1.7", "KAFKA_RULES §1.7"),
        ("G99", "G99"),
        ("I-4, I-3", "I-4"),
        ("T-22", "T-22"),
        ("F05", "F05"),
        ("TX99", "TX99"),
        ("SEC99", "SEC99"),
        ("TT-99", "TT-99"),
        ("TK99", "TK99"),
        ("KT-99", "KT-99"),
        ("R-01", "R-01"),
        ("def test_g09_it_works() -> None:", "g09"),
        ("async def test_g08_t22_it_works() -> None:", "t22"),
        ("def test_tx99_it_works() -> None:", "tx99"),
        ("docs/decisions/0099", "decisions/0099"),
        ("docs/nowhere.md", "docs/nowhere.md"),
    ],
)
def test_a_wrong_reference_is_reported_with_file_and_line(text: str, cited: str) -> None:
    (complaint,) = complaints_about(f"\n{text}")

    assert complaint.startswith(f"ottla/example.py:2: {cited}: ")


def test_a_document_may_cite_its_own_sections_without_its_name() -> None:
    assert complaints_about("§4.1", path="docs/security.md") == []


def test_anchors_are_read_from_headings_rules_and_rows() -> None:
    assert anchors_in('<a id="1"></a>\n\n## §1\n\n- <a id="1.7.2"></a>**§1.7.2** x\n| <a id="13.6.2a"></a>a |') == [
        "1",
        "1.7.2",
        "13.6.2a",
    ]

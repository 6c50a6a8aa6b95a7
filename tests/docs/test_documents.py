"""Documents agree with the repository they are about: links, files, tests, seeds, and the index of decisions."""

import re
from pathlib import Path

import pytest

from tests.docs.links import broken_links, documents, make_targets_named_in, missing_files, named_tests, uneven_rows
from tests.docs.references import ROOT, all_anchors, references_in, texts
from tests.simulation.cluster.test_seeded_bugs import ALL_FOUND_BY, FOUND_BY

TEST = re.compile(r"\bdef (test_\w+)")
INVARIANT = re.compile(r'^\| <a id="(I-\d+)"></a>.*\| (.*) \|$', re.MULTILINE)
CVE = re.compile(r"CVE-\d{4}-\d+")
DECISION = re.compile(r"^\| \[\d{4}\]\((\S+)\) \|.*\| (\S.*?) \|$", re.MULTILINE)

INVARIANTS = ROOT / "docs/invariants.md"
SCENARIOS = ROOT / "docs/scenarios.md"
VULNERABILITIES = ROOT / "docs/vulnerabilities.md"
SEEDED_BUGS = ROOT / "docs/seeded-bugs.md"
DECISIONS = ROOT / "docs/decisions"


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    assert list(broken_links(document)) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text(
        "# One, two\n[x](#one-two) [y](b.md) [z](#three) [u](https://example.org)\n```\n[no](c.md)\n```\n"
    )

    assert list(broken_links(document)) == ["b.md: no such file", "#three: no such place in it"]


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_rows_of_tables_have_the_cells_of_their_heading(document: Path) -> None:
    assert list(uneven_rows(document)) == []


def test_a_row_of_another_table_is_found(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text("| a | b |\n| --- | --- |\n| 1 \\| 2 | 3 |\n| 1 | 2 | 3 |\n")

    assert list(uneven_rows(document)) == ["| 1 | 2 | 3 |"]


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_named_in_documents_exist(document: Path) -> None:
    assert list(missing_files(document)) == []


def test_a_missing_file_is_found_in_text_and_in_diagrams(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text(
        "`ottla/none.py` `broker/none.py:3` `broker/broker.py`\n```\na ─► storage/none.py\n```\n```sh\nx/y.py\n```\n"
    )

    assert list(missing_files(document)) == ["ottla/none.py", "storage/none.py", "ottla/none.py", "broker/none.py"]


def test_named_tests_documents_exist() -> None:
    defined = {name for path in ROOT.glob("tests/**/*.py") for name in TEST.findall(path.read_text())}
    named = set().union(*(named_tests(document) for document in documents()))

    assert named - defined - {path.stem for path in ROOT.glob("tests/**/*.py")} == set()


@pytest.mark.parametrize(
    ("document", "at_least"), [(SCENARIOS, 120), (VULNERABILITIES, 35)], ids=lambda each: str(each)[-20:]
)
def test_tests_of_scenarios_are_in_the_files_named(document: Path, at_least: int) -> None:
    shown_by = re.findall(r"`(tests/[\w/.]+)`: `(test_\w+)`", document.read_text())
    missing = [(file, test) for file, test in shown_by if test not in TEST.findall((ROOT / file).read_text())]

    assert len(shown_by) > at_least
    assert missing == []


def test_every_vulnerability_that_is_cited_has_its_row() -> None:
    rows = set(CVE.findall(VULNERABILITIES.read_text()))
    cited = {each for _, text in texts() for each in CVE.findall(text)}

    assert cited - rows == set()


def test_make_targets_named_in_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set().union(*(make_targets_named_in(document) for document in documents()))

    assert {"test", "serve", "check"} <= named
    assert named - targets == set()


def test_every_scenario_is_cited_by_a_test() -> None:
    # Those of transactions, security and the testing kit name their tests, see above.
    scenarios = {each for each in all_anchors()["docs/scenarios.md"] if not each.startswith(("TX", "TK", "SEC"))}
    cited = {
        reference.anchor
        for path, text in texts()
        if path.startswith(("tests/", "benchmarks/"))
        for reference in references_in(path, text)
    }
    assert scenarios - cited == set()


def test_an_invariant_is_cited_by_what_checks_it() -> None:
    for invariant, checkers in INVARIANT.findall(INVARIANTS.read_text()):
        files = re.findall(r"`(tests/[\w/.]+)`", checkers)
        citing = [name for name in files if re.search(rf"\b{invariant}\b", (ROOT / name).read_text())]
        assert citing or checkers.startswith("nothing yet"), invariant


def test_the_documented_seeds_are_those_of_the_test() -> None:
    """The tables have the bugs in the order of the test."""
    section = SEEDED_BUGS.read_text().split("\n## In the simulation of a cluster\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (?:(T-\d+) \| )?[^|]* \| (\d+) \| [^|]* \|$", section, re.MULTILINE)
    tests = [(bug if bug in FOUND_BY else "", seed) for bug, seed in ALL_FOUND_BY.items()]

    assert [(bug, int(seed)) for bug, seed in rows] == tests


def test_the_index_of_decisions_lists_each_with_its_state() -> None:
    states = dict(DECISION.findall((DECISIONS / "README.md").read_text()))

    assert set(states) == {path.name for path in DECISIONS.glob("[0-9]*.md")}
    assert all(re.match(r"accepted|superseded by \[\d{4}\]\(\S+\)", state) for state in states.values()), states

"""docs/faults-matrix.md names every fault and every outcome, and its example shows what it says."""

import re
from pathlib import Path

import pytest

from ottla.testing.audit.findings import FindingKind
from ottla.testing.matrix.matrix_faults import MATRIX_FAULTS, chosen_faults
from ottla.testing.matrix.outcomes import DUPLICATED, LOST, MatrixOutcome
from tests.audit.suites import ini, run
from tests.docs.pasting import block

pytest_plugins = ("pytester",)

DOCUMENT = Path(__file__).parents[2] / "docs" / "faults-matrix.md"


@pytest.mark.parametrize("name", [*(each.name for each in MATRIX_FAULTS), *MatrixOutcome])
def test_every_fault_and_outcome_is_documented(name: str) -> None:
    written = "disconnect-API" if name.startswith("disconnect-") else name

    assert f"`{written}`" in DOCUMENT.read_text()


def test_the_document_names_no_other_fault() -> None:
    rows = DOCUMENT.read_text().partition("| fault | what happens")[2].partition("\n\n")[0]

    named = set(re.findall(r"`([a-z-]+)`", rows.replace("disconnect-API", "")))
    assert named <= {each.name for each in MATRIX_FAULTS}


@pytest.mark.parametrize(("outcome", "kinds"), [("lost", LOST), ("duplicated", DUPLICATED)])
def test_findings_behind_an_outcome_are_documented(outcome: str, kinds: frozenset[FindingKind]) -> None:
    (row,) = [line for line in DOCUMENT.read_text().splitlines() if line.startswith(f"| `{outcome}` |")]

    assert set(re.findall(r"\b[BP]\d\b", row)) == {each.name for each in kinds}


def test_lines_of_the_documented_ini_are_faults() -> None:
    lines = DOCUMENT.read_text().partition("ottla_faults_matrix =\n")[2].partition("```")[0].splitlines()

    names = [each.name for each in chosen_faults([line.strip() for line in lines])]
    assert names[-1] == "slow-bills"
    assert {"commit-rebalance", "produce-answer-lost"} <= set(names)


@pytest.mark.slow
def test_the_example_prints_the_documented_table(pytester: pytest.Pytester) -> None:
    ini(pytester)
    pytester.makepyfile(test_payments=block("docs/faults-matrix.md", "from confluent_kafka").text)
    shown = DOCUMENT.read_text().partition("```\nottla: faults matrix: ")[2].partition("```")[0].splitlines()[1:]

    printed = run(pytester, "--ottla-faults-matrix").stdout.lines

    assert [line for line in printed if line in shown] == shown

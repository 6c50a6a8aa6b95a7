"""docs/audit.md has every finding, and its examples fail and pass as it says."""

from pathlib import Path

import pytest

from ottla.testing.audit.findings import FindingKind
from tests.docs.pasting import block

pytest_plugins = ("pytester",)
NAME = "docs/audit.md"
DOCUMENT = Path(__file__).parents[2] / NAME


@pytest.mark.parametrize("kind", FindingKind)
def test_every_finding_is_documented(kind: FindingKind) -> None:
    assert f"| {kind.name} | {kind.value} |" in DOCUMENT.read_text()


@pytest.mark.parametrize(("mode", "errors"), [("errors", 0), ("all", 1)])
def test_the_failing_example_fails(pytester: pytest.Pytester, mode: str, errors: int) -> None:
    pytester.makeini(f"[pytest]\nottla_audit = {mode}\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(block(NAME, "from confluent_kafka import Consumer").text)

    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=60)

    result.assert_outcomes(passed=1, errors=errors)
    if errors:
        printed = DOCUMENT.read_text().partition("```\nottla: audit: 1 findings")[2].partition("```")[0].splitlines()
        result.stdout.fnmatch_lines(["ottla: audit: 1 findings", printed[1]])
        result.stdout.fnmatch_lines(["    +* ms  first#*  Fetch orders-0: offsets 0 to 0"])


def test_the_passing_example_passes(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(block(NAME, "from confluent_kafka import Producer").text)

    pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=60).assert_outcomes(passed=1)

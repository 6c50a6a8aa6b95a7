"""examples/shop: each bug of the service fails its test with the words of docs/finding-bugs.md, until corrected."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pasting import blocks

ROOT = Path(__file__).parents[2]
SHOP = ROOT / "examples" / "shop"
NAME = "docs/finding-bugs.md"
ENDED_WITHIN_S = 200
TESTS = (
    "test_all_orders_are_paid_while_a_new_worker_takes_over",
    "test_an_order_is_paid_once_if_an_acknowledgement_is_lost",
    "test_an_order_is_paid_once_if_its_commit_is_refused",
    "test_a_cancelled_order_costs_nothing_if_the_bank_was_away",
)
"""In the order of the page."""
CHANCE = (
    (r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "-ID"),
    (r"crc [0-9a-f]{8}", "crc 0"),
    (r"#\d+", "#0"),
    (r"\d+(?:\.\d+)? ms", "0 ms"),
    (r"^ +\d+\.\d  ", "0.0  "),
    (r"generation \d+", "generation 0"),
    (r"^-+ | -+$", ""),
)


@pytest.fixture(scope="module")
def printed() -> str:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
        "-rA",
        "--ottla-report=full",
    ]
    environ = {**os.environ, "OTTLA_DEADLINE_FACTOR": "4"}
    done = subprocess.run(command, cwd=SHOP, env=environ, capture_output=True, text=True, timeout=ENDED_WITHIN_S)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout[-8000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("test", TESTS)
def test_each_bug_fails_its_test_until_corrected(printed: str, test: str) -> None:
    outcomes = set(re.findall(rf"^(PASSED|FAILED|ERROR) tests/test_shop\.py::{test}\[(\w+)\]", printed, re.MULTILINE))

    assert outcomes == {("FAILED", "as_written"), ("PASSED", "corrected")}


def test_the_shop_leaves_nothing_open(printed: str) -> None:
    assert "was not closed" not in printed
    assert "still has" not in printed
    assert re.search(r"^=+ 4 failed, 4 passed in ", printed, re.MULTILINE)


@pytest.mark.parametrize("position", range(len(TESTS)), ids=TESTS)
def test_the_page_shows_the_words_of_each_failure(printed: str, position: int) -> None:
    said = set(map(without_chance, failure(printed, TESTS[position])))

    missing = [line for line in words_shown()[position] if without_chance(line) not in said]

    assert missing == []


def failure(printed: str, test: str) -> list[str]:
    """What pytest prints of one that has failed."""
    _, title, rest = printed.partition(f"_ {test}[as_written] _")
    assert title
    lines = rest.splitlines()[1:]
    ends = [number for number, line in enumerate(lines) if re.match(r"_{2,} .* _{2,}$|={5,}", line)]
    return lines[: ends[0]]


def words_shown() -> list[list[str]]:
    """The blocks of the page that are in no language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / NAME).read_text(), re.MULTILINE | re.DOTALL)
    return [text.splitlines() for language, text in found if not language]


def without_chance(line: str) -> str:
    """Times, member ids, generations, and which connection it was."""
    for pattern, text in CHANCE:
        line = re.sub(pattern, text, line)
    return line.rstrip()


def excerpts() -> list[str]:
    return [each.text for each in blocks() if each.document == NAME and each.language == "python"]


@pytest.mark.parametrize("excerpt", excerpts(), ids=lambda text: text.strip().partition("\n")[0][:50])
def test_code_of_the_page_is_code_of_the_shop(excerpt: str) -> None:
    sources = [path.read_text() for path in sorted(SHOP.rglob("*.py"))]

    assert any(excerpt.rstrip() in source for source in sources)


def test_commands_of_the_shop_are_the_ones_run_here() -> None:
    pages = (NAME, "examples/shop/README.md")
    shown = [each.text for each in blocks() if each.document in pages and each.language == "sh"]

    assert sum("cd examples/shop && pytest\n" in text for text in shown) == len(pages)

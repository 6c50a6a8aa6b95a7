"""Every recipe of docs/cookbook.md passes as it is pasted, and fails where what it shows does not hold."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.pasting import paste, run_python
from tests.docs.references import ROOT

DOCUMENT = ROOT / "docs" / "cookbook.md"
RECIPES_MIN = 20
LINES_MIN, LINES_MAX = 8, 26
ENDED_WITHIN_S = 240

# What is wrong then with the code under test, or with the world that it is tested in.
BROKEN: Mapping[str, tuple[str, str]] = {
    "rebalance in the middle of a batch": (
        'first.subscribe(["orders"], on_revoke=commit_done)',
        'first.subscribe(["orders"])',
    ),
    "slower than max.poll.interval.ms": (
        '"session.timeout.ms": 1000, "max.poll.interval.ms": 1000',
        '"session.timeout.ms": 45_000, "max.poll.interval.ms": 60_000',
    ),
    "one bad record": ("except ValueError as error:", "except KeyError as error:"),
    "comes twice": ("if message.key() not in dict(paid):", "if True:"),
    "takes over": ('advance("45s")', 'advance("1s")'),
    "restart a consumer": (', "group.instance.id": "shop-1"', ""),
    "coordinator moves": ("do=Hold()", 'do={"error": "UNKNOWN_MEMBER_ID"}'),
    "falls behind": ("if lag > limit", "if lag > 2 * limit"),
    "acknowledgement is lost": ('"enable.idempotence": idempotent', '"enable.idempotence": True'),
    "order of my records": ('"enable.idempotence": idempotent', '"enable.idempotence": True'),
    "leader moves": ("do=Hold()", 'do={"error": "MESSAGE_TOO_LARGE"}'),
    "disk is full": ('kafka.client_config("producer")', '{**kafka.client_config("producer"), "retries": 0}'),
    "throttled": ('"producer_byte_rate": 10_000', '"producer_byte_rate": 10_000_000'),
    "readers expect": ('key=order["customer"], ', ""),
    "exactly once": ('"billing-1"', 'f"billing-{dies}"'),
    "was aborted": ("producer.abort_transaction", "producer.commit_transaction"),
    "zombie": ('"billing-1"', 'f"billing-{value}"'),
    "retention take": ('"retention.ms": 86_400_000', '"retention.ms": 864_000_000'),
    "long holiday": ('advance("8d")', 'advance("6d")'),
    "after a tombstone": ('(b"bob", None)])', '(b"bob", b"Rome")])'),
    "within 10 s": ('{**config, "enable.auto.commit": False}', "config"),
    "right to write": ('"operation": "read"', '"operation": "write"'),
    "older Kafka": ('"Produce": "0-7", ', ""),
    "thousand orders": ('{"0": 400}', '{"0": 300}'),
    "on asyncio": ("await consumer.commit()", "await asyncio.sleep(0)"),
    "without pytest": ('"NOT_ENOUGH_REPLICAS"', '"MESSAGE_TOO_LARGE"'),
    "another language": ("error=NOT_ENOUGH_REPLICAS,times=2", "error=TOPIC_AUTHORIZATION_FAILED"),
}


class Recipe(NamedTuple):
    question: str
    before: str
    language: str
    code: str
    after: str

    @property
    def is_of_pytest(self) -> bool:
        return self.language == "python" and "unittest" not in self.code

    @property
    def broken(self) -> str:
        (wrong,) = [each for part, each in BROKEN.items() if part in self.question]
        assert self.code.count(wrong[0]) == 1, (
            f"{self.question}: {wrong[0]!r} stands there {self.code.count(wrong[0])} times"
        )
        return self.code.replace(*wrong)


def recipes() -> list[Recipe]:
    sections = re.findall(r"^### (.*?)\n(.*?)(?=^##|\Z)", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    found: list[Recipe] = []
    for question, text in sections:
        before, language, code, after = re.split(r"^```(\w*)\n(.*?)^```\n", text, flags=re.MULTILINE | re.DOTALL)
        found.append(Recipe(question, before.strip(), language, code, after.strip()))
    return found


RECIPES = recipes()
OF_PYTEST = [each for each in RECIPES if each.is_of_pytest]


def name_of(recipe: Recipe) -> str:
    return re.sub(r"\W+", "_", recipe.question.lower()).strip("_")


# A client that a failed test has left open ends while its broker is there. Later librdkafka's would try to leave its
# group, with all of a processor, until its session is over.
END_CLIENTS_OF_FAILED_TESTS = """
import gc
import sys

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown():
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        vars(sys).pop(name, None)
    gc.collect()
"""


def run_all(directory: Path, files: Mapping[str, str], *options: str) -> Mapping[str, str]:
    """What pytest says of each file: passed, failed or error."""
    (directory / "conftest.py").write_text(END_CLIENTS_OF_FAILED_TESTS)
    for name, code in files.items():
        (directory / f"test_{name}.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--rootdir", str(directory)]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *options, str(directory)],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=ENDED_WITHIN_S,
    )
    words: dict[str, set[str]] = {}
    for word, name in re.findall(r"^(PASSED|FAILED|ERROR) test_(\w+)\.py", done.stdout, re.MULTILINE):
        words.setdefault(name, set()).add(word)
    assert words.keys() == files.keys(), done.stdout[-4000:]
    return {name: f"{'PASSED' if found == {'PASSED'} else 'FAILED'}\n{done.stdout}" for name, found in words.items()}


@pytest.fixture(scope="module")
def as_they_stand(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    return run_all(tmp_path_factory.mktemp("recipes"), {name_of(each): each.code for each in OF_PYTEST})


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    files = {name_of(each): each.broken for each in OF_PYTEST}
    # Clients that such a test leaves open do not find the broker of the next one; most of them wait for a deadline.
    together = ("--numprocesses=4", "--dist=loadfile")
    return run_all(tmp_path_factory.mktemp("broken"), files, "--ottla-isolation=fresh", *together)


def test_there_are_twenty_recipes() -> None:
    assert len({each.question for each in RECIPES}) == len(RECIPES) >= RECIPES_MIN


@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
def test_a_recipe_is_short_and_says_what_it_shows(recipe: Recipe) -> None:
    lines = [line for line in recipe.code.splitlines() if line]

    assert recipe.question.endswith("?")
    assert recipe.before.endswith(".")
    assert recipe.after.endswith((".", ")."))
    assert recipe.language != "python" or LINES_MIN <= len(lines) <= LINES_MAX


@pytest.mark.timeout(ENDED_WITHIN_S)
@pytest.mark.parametrize("recipe", OF_PYTEST, ids=name_of)
def test_a_recipe_passes_as_it_is_pasted(recipe: Recipe, as_they_stand: Mapping[str, str]) -> None:
    assert as_they_stand[name_of(recipe)].startswith("PASSED")


@pytest.mark.slow
@pytest.mark.timeout(ENDED_WITHIN_S)
@pytest.mark.parametrize("recipe", OF_PYTEST, ids=name_of)
def test_a_recipe_fails_where_it_does_not_hold(recipe: Recipe, broken: Mapping[str, str]) -> None:
    assert broken[name_of(recipe)].startswith("FAILED")


def recipe_about(part: str) -> Recipe:
    (found,) = [each for each in RECIPES if part in each.question]
    return found


def test_the_recipe_for_unittest_runs(tmp_path: Path) -> None:
    recipe, program = recipe_about("without pytest"), tmp_path / "program.py"

    program.write_text(recipe.code)
    assert "OK" in run_python(program)
    program.write_text(recipe.broken)
    with pytest.raises(AssertionError, match="FAILED"):
        run_python(program)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_the_recipe_for_other_languages_prints_what_it_shows(tmp_path: Path) -> None:
    recipe = recipe_about("another language")
    shown = [line for line in recipe.code.splitlines() if line[0] not in "$>"]

    assert paste(commands(recipe.code), "", tmp_path).splitlines() == shown
    assert "passed" not in paste(commands(recipe.broken), "", tmp_path).splitlines()


def commands(transcript: str) -> str:
    return "\n".join(line[2:] for line in transcript.splitlines() if line.startswith(("$ ", "> ")))

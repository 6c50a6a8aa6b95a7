"""The package keeps its structure: nothing that `exceptions.txt` does not list, and no list longer than needed."""

import pytest

from tests.structure import source
from tests.structure.ratchet import CHECKS, EXCEPTIONS, build, differences, find, parse, reasons
from tests.structure.source import SourceFile


@pytest.fixture(scope="module")
def files() -> dict[str, SourceFile]:
    return source.load()


@pytest.mark.parametrize("check", CHECKS)
def test_nothing_is_found_but_what_is_listed(files: dict[str, SourceFile], check: str) -> None:
    allowed = parse(EXCEPTIONS.read_text())[check]

    wrong = differences(find(files, (check,))[check], allowed)

    assert not wrong, f"{CHECKS[check][0]}:\n" + "\n".join(wrong)


def test_exceptions_are_sorted_and_listed_once() -> None:
    text = EXCEPTIONS.read_text()

    assert text == build({name: sorted(set(keys)) for name, keys in parse(text).items()}, reasons(text))

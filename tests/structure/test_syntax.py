"""Source files are parsed whatever garbage earlier tests left behind."""

import ast
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import pytest_runtest_teardown
from tests.structure.source import PACKAGE, ROOT
from tests.syntax import syntax_tree

COLLECTIONS = 400


class ParsesWhenCollected:
    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        ast.parse("f(1) + 2")


@pytest.fixture
def frequent_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(COLLECTIONS)
    yield
    gc.set_threshold(*before)


def test_garbage_that_parses_does_not_disturb(frequent_collections: None) -> None:
    """As a logged traceback does."""
    for path in sorted((ROOT / PACKAGE / "storage").glob("*.py")):
        garbage = [ParsesWhenCollected() for _ in range(5)]
        del garbage

        assert syntax_tree(path.read_text(encoding="utf-8")).body
        assert gc.isenabled()


@pytest.mark.parametrize(("next_file", "is_left"), [("a.py", True), ("b.py", False), (None, False)])
def test_garbage_of_one_file_is_not_left_to_the_next(next_file: str | None, *, is_left: bool) -> None:
    item: Any = SimpleNamespace(path=Path("a.py"))
    following: Any = None if next_file is None else SimpleNamespace(path=Path(next_file))
    gc.disable()
    try:
        garbage = ParsesWhenCollected()
        left = weakref.ref(garbage)
        del garbage

        pytest_runtest_teardown(item, following)

        assert (left() is not None) == is_left
    finally:
        gc.enable()

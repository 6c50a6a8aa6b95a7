"""Source files are parsed whatever garbage earlier tests left behind."""

import ast
import gc
from collections.abc import Iterator

import pytest

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

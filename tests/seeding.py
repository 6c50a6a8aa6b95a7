"""Seeds a bug in a function of Ottla, and says whether a test has found it."""

import inspect
import textwrap
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest


def rewrite(patch: pytest.MonkeyPatch, function: Callable[..., Any], *changes: tuple[str, str]) -> None:
    """Seeds a bug of a few words: where the source of the function has the first text of a change, it has the second.

    The function stays the object that it is, so that tables and modules that have taken it have the bug too. It has no
    decorator, and no variables of a function around it. AssertionError: the source does not have that text, or has it
    more than once.
    """
    assert isinstance(function, FunctionType), f"{function!r} is no function"
    source, path = textwrap.dedent(inspect.getsource(function)), inspect.getfile(function)
    for old, new in changes:
        assert source.count(old) == 1, f"{function.__qualname__} has {source.count(old)} times {old!r}, not once"
        source = source.replace(old, new)
    # In the lines where the function stands, for tracebacks.
    source = "\n" * (function.__code__.co_firstlineno - 1) + source
    made: dict[str, Any] = {}
    exec(compile(source, path, "exec", dont_inherit=True), function.__globals__, made)
    patch.setattr(function, "__code__", made[function.__name__].__code__)


@contextmanager
def has_to_fail() -> Iterator[None]:
    """For a test, which has to fail by an assertion that stands in a file of tests: neither one of Ottla's own nor an
    error of what was seeded shows that the test would notice."""
    with pytest.raises(AssertionError) as failure:
        yield
    *_, (frame, _) = traceback.walk_tb(failure.tb)
    where = Path(frame.f_code.co_filename)
    assert where.name.startswith("test_"), f"{where}:{frame.f_lineno} has failed, which is no test: {failure.value}"

"""A test's name says condition and outcome, and is short enough to be read at once."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
NAME_LENGTH_MAX = 60
# Folders that still have longer names. None is added.
EXCEPTIONS = (
    "cluster",
    "coordinator",
    "events",
    "replication",
    "simulation",
    "storage",
    "timer",
)


def _long_names() -> list[str]:
    return [
        f"{path.relative_to(TESTS)}:{node.lineno}: {node.name}"
        for path in sorted(TESTS.rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and len(node.name) > NAME_LENGTH_MAX
    ]


def test_names_of_tests_have_at_most_sixty_characters() -> None:
    found = [name for name in _long_names() if name.partition("/")[0] not in EXCEPTIONS]

    assert not found, "\n".join(found)


def test_every_excepted_folder_still_has_a_long_name() -> None:
    folders = {name.partition("/")[0] for name in _long_names()}

    assert set(EXCEPTIONS) <= folders, f"remove {set(EXCEPTIONS) - folders} from EXCEPTIONS"

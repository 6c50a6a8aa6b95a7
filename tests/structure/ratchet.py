"""The checks, and the exceptions that each of them has.

`exceptions.txt` lists what is found today, a section for each check. The lists may only become shorter: the test fails
when something is found that is not listed, and when something is listed that is found no more. An exception that is to
stay says why, behind `  # `.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from tests.structure import imports, sizes, source
from tests.structure.source import Finding, SourceFile
from tests.structure.unused import unused

EXCEPTIONS = Path(__file__).parent / "exceptions.txt"
HEAD = """\
# What the checks of tests/structure still find. Lines may go, none may come; `python -m tests.structure --update`
# removes those that are found no more, and renames those whose file was moved.
"""

REASON = "  # "

Lists = dict[str, list[str]]


@cache
def _users() -> dict[str, SourceFile]:
    return source.load(packages=source.USERS)


def _unused(files: dict[str, SourceFile]) -> list[Finding]:
    return unused(files, source.load(suffix=".pyi") | _users())


def _long_test_names(_: dict[str, SourceFile]) -> list[Finding]:
    return sizes.long_test_names({name: file for name, file in _users().items() if file.top_level == "tests"})


CHECKS: Mapping[str, tuple[str, Callable[[dict[str, SourceFile]], list[Finding]]]] = {
    "circles": ("imports that are part of a circle", imports.circles),
    "type-checking": ("imports under TYPE_CHECKING that are not lazy", imports.imports_for_types),
    "whole-broker": ("files that hold the whole Broker and do not make it", imports.whole_broker),
    "long-functions": (f"functions of more than {sizes.FUNCTION_LINES_MAX} lines", sizes.long_functions),
    "long-files": (f"files of more than {sizes.FILE_LINES_MAX} lines", sizes.long_files),
    "short-files": (f"files of less than {sizes.FILE_LINES_MIN} lines", sizes.short_files),
    "nested-functions": ("functions within functions, in the control plane", sizes.nested_functions),
    "classes-named-alike": ("classes with the name of another", sizes.classes_named_alike),
    "long-test-names": (f"tests with names of more than {sizes.TEST_NAME_LENGTH_MAX} characters", _long_test_names),
    "unused": ("symbols that only tests use, or nothing", _unused),
}


def find(files: dict[str, SourceFile], checks: tuple[str, ...] = tuple(CHECKS)) -> dict[str, list[Finding]]:
    return {name: CHECKS[name][1](files) for name in checks}


def parse(text: str) -> Lists:
    lists: Lists = {name: [] for name in CHECKS}
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            lists[section].append(line.partition(REASON)[0])
    return lists


def reasons(text: str) -> dict[str, str]:
    """Of the exceptions that have one."""
    lines = [line.partition(REASON) for line in text.splitlines() if not line.startswith("#")]
    return {key: reason for key, _, reason in lines if reason}


def build(lists: Mapping[str, list[str]], why: Mapping[str, str]) -> str:
    lines = {
        name: [f"{key}{REASON}{why[key]}" if key in why else key for key in sorted(lists[name])] for name in CHECKS
    }
    sections = ["\n".join([f"\n[{name}]", *lines[name]]) for name in CHECKS]
    return HEAD + "\n".join(sections) + "\n"


def differences(found: list[Finding], allowed: list[str]) -> list[str]:
    """A sentence for each line that is missing in the list, or too much."""
    keys = {each.key for each in found}
    new = [str(each) for each in found if each.key not in allowed]
    gone = [
        f"{key}: found no more; python -m tests.structure --update removes it" for key in allowed if key not in keys
    ]
    return new + gone


def updated(found: Mapping[str, list[Finding]], allowed: Lists) -> Lists:
    """The lists as they are to be now. A list that would become longer stays as it is, but for what is gone."""
    lists = {}
    for name, findings in found.items():
        keys = sorted({each.key for each in findings})
        lists[name] = keys if len(keys) <= len(allowed[name]) else [key for key in allowed[name] if key in keys]
    return lists

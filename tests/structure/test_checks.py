"""The checks themselves, on a package made for them."""

import re
from pathlib import Path

import pytest

from tests.structure import imports, sizes, source
from tests.structure.ratchet import CHECKS, differences, updated
from tests.structure.source import Finding, SourceFile
from tests.structure.unused import unused


def package(root: Path, **modules: str) -> dict[str, SourceFile]:
    """Modules of `ottla` by name, `__` between two words for a dot."""
    for name, text in modules.items():
        path = root / "ottla" / f"{re.sub(r'(?<=[a-z])__(?=[a-z])', '/', name)}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return source.load(root)


def keys(findings: list[Finding]) -> list[str]:
    return [each.key for each in findings]


def test_modules_that_import_each_other_in_a_ring_are_a_circle(tmp_path: Path) -> None:
    files = package(
        tmp_path,
        a="from ottla.b import x\nimport ottla.d",
        b="def f():\n    from ottla import c",
        c="if TYPE_CHECKING:\n    from ottla.a import y",
        d="import os",
    )

    assert [str(each) for each in imports.circles(files)] == [
        "ottla/a.py:1: ottla.a imports ottla.b, in a circle of 3 modules",
        "ottla/b.py:2: ottla.b imports ottla.c, in a circle of 3 modules",
        "ottla/c.py:2: ottla.c imports ottla.a, in a circle of 3 modules",
    ]


def test_importing_the_broker_class_or_its_module_holds_it_whole(tmp_path: Path) -> None:
    files = package(
        tmp_path,
        broker__broker="class Broker: ...\nclass StartError: ...",
        a="if TYPE_CHECKING:\n    from ottla.broker.broker import Broker",
        b="from ottla.broker import broker",
        c="from ottla.broker.broker import StartError",
        broker__local_cluster="from ottla.broker.broker import Broker",
    )

    assert keys(imports.whole_broker(files)) == ["ottla/a.py", "ottla/b.py"]


def test_an_import_for_types_may_be_lazy_and_nothing_else(tmp_path: Path) -> None:
    lazy = "if TYPE_CHECKING:\n    from ottla.heavy import x\n"
    files = package(
        tmp_path,
        broker__broker="import ottla.light",
        broker__part="if TYPE_CHECKING:\n    from ottla.light import x",
        a="import ottla.b\nif TYPE_CHECKING:\n    from ottla.heavy import x",
        b="import ottla.heavy",
        c=lazy + "def f():\n    from ottla.heavy import x",
        d="if TYPE_CHECKING:\n    import os",
        heavy="",
        light="",
    )

    assert keys(imports.imports_for_types(files)) == [
        "ottla.a -> ottla.heavy",
        "ottla.broker.part -> ottla.light",
        "ottla.d -> os",
    ]


def test_a_broker_class_that_has_moved_is_not_overlooked(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"ottla\.broker\.broker has moved"):
        imports.whole_broker(package(tmp_path, a=""))


def test_sizes_at_the_limit_are_fine_and_one_line_beyond_is_not(tmp_path: Path) -> None:
    def function(lines: int) -> str:
        return f"def f{lines}():\n" + "    x\n" * (lines - 1)

    files = package(tmp_path, a=function(45) + function(46), b="x\n" * 450, c="x\n" * 451, d="x\n" * 59, e="x\n" * 60)

    assert keys(sizes.long_functions(files)) == ["ottla/a.py f46"]
    assert keys(sizes.long_files(files)) == ["ottla/c.py"]
    assert keys(sizes.short_files(files)) == ["ottla/d.py"]


def test_short_file_that_has_its_place_by_a_rule_is_fine(tmp_path: Path) -> None:
    files = package(
        tmp_path, __main__="", protocol__messages__fetch="", broker__handlers__fetch="", broker__handlers__nodes=""
    )

    assert keys(sizes.short_files(files)) == ["ottla/broker/handlers/nodes.py"]


def test_test_name_of_more_than_60_characters_is_too_long(tmp_path: Path) -> None:
    names = ["test_" + "x" * 55, "test_" + "y" * 56]
    files = package(tmp_path, a="".join(f"def {name}(): ...\n" for name in names))

    assert keys(sizes.long_test_names(files)) == [f"ottla/a.py {names[1]}"]


def test_each_further_class_of_a_name_is_one_too_many(tmp_path: Path) -> None:
    files = package(tmp_path, a="class A: ...\nclass B: ...", b="class A: ...", c="class A: ...")

    assert [str(each) for each in sizes.classes_named_alike(files)] == [
        "ottla/b.py:1: A is also the class at ottla/a.py:1",
        "ottla/c.py:1: A is also the class at ottla/a.py:1",
    ]


UNUSED = """
import asyncio
LIMIT = 1
FORGOTTEN = 2
def used(x: "Named"): return LIMIT
def recursive(): return recursive()
def tested(): ...
def exported(): ...
class Named(asyncio.Protocol):
    def data_received(self, data): ...
    def called(self): ...
    def lonely(self): return self.lonely
@command
def registered(): ...
"""


def test_what_only_tests_or_nothing_uses_is_found(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "t.py").write_text("from ottla.a import tested, used\ntested(used)")
    files = package(
        tmp_path,
        a=UNUSED,
        b="from ottla.a import exported, used\n__all__ = ['exported']\nused(1).called()",
        c="import ottla.b\nottla.b.exported()",
    )

    findings = unused(files, source.load(tmp_path, ("tests",)))

    assert [str(each) for each in findings] == [
        "ottla/a.py:4: FORGOTTEN is not used",
        "ottla/a.py:6: recursive is not used",
        "ottla/a.py:7: tested is used by tests alone",
        "ottla/a.py:12: Named.lonely is not used",
    ]


def test_exceptions_fail_when_too_few_or_too_many() -> None:
    found = [Finding("kept", "a.py", 1, "kept"), Finding("new", "a.py", 2, "a new one")]

    assert differences(found, ["kept", "gone"]) == [
        "a.py:2: a new one",
        "gone: found no more; python -m tests.structure --update removes it",
    ]


def test_an_update_takes_a_moved_exception_but_not_one_more() -> None:
    found = {name: [Finding("new", "a.py", 1, ""), Finding("kept", "a.py", 1, "")] for name in CHECKS}

    longer = updated(found, {name: ["kept", "gone"] for name in CHECKS})
    shorter = updated(found, {name: ["kept"] for name in CHECKS})

    assert set(map(tuple, longer.values())) == {("kept", "new")}
    assert set(map(tuple, shorter.values())) == {("kept",)}

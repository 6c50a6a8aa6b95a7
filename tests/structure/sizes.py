"""Lengths of functions and files, and names of classes that mean two things."""

import ast
from collections import defaultdict

from tests.structure.source import Finding, SourceFile, definitions

FUNCTION_LINES_MAX = 45
FILE_LINES_MAX = 450
FILE_LINES_MIN = 60


def long_functions(files: dict[str, SourceFile]) -> list[Finding]:
    """From `def` to the last line."""
    findings = []
    for module in files.values():
        for name, node in definitions(module.tree):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if not isinstance(node, ast.ClassDef) and lines > FUNCTION_LINES_MAX:
                what = f"{name} has {lines} lines"
                findings.append(Finding(f"{module.path} {name}", module.path, node.lineno, what))
    return findings


def long_files(files: dict[str, SourceFile]) -> list[Finding]:
    return [_file(module) for module in files.values() if module.lines > FILE_LINES_MAX]


def short_files(files: dict[str, SourceFile]) -> list[Finding]:
    """An empty file only makes a package."""
    return [_file(module) for module in files.values() if 0 < module.lines < FILE_LINES_MIN]


def _file(module: SourceFile) -> Finding:
    return Finding(module.path, module.path, 1, f"{module.lines} lines")


def classes_named_alike(files: dict[str, SourceFile]) -> list[Finding]:
    """Every definition beyond the first of a name. Private names count: a reader meets them too."""
    places: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for module in files.values():
        for _, node in definitions(module.tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append((module.path, node.lineno))
    findings = []
    for name, defined in sorted(places.items()):
        first = "{}:{}".format(*defined[0])
        for number, (path, line) in enumerate(defined[1:], start=2):
            findings.append(Finding(f"{name} #{number}", path, line, f"{name} is also the class at {first}"))
    return findings

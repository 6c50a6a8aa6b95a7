"""Lengths of functions, files and names of tests, functions within functions, and names of classes that mean two
things."""

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.structure.source import Finding, SourceFile, definitions

FUNCTION_LINES_MAX = 45
FILE_LINES_MAX = 450
FILE_LINES_MIN = 60
TEST_NAME_LENGTH_MAX = 60
CONTROL_PLANE = ("ottla/broker/handlers/", "ottla/broker/metadata/", "ottla/broker/replicas/")

# Rooms where a file is found by the name of the one thing it is about, however little there is to say of it.
ONE_FILE_PER = {
    "ottla/protocol/messages": "API",
    "ottla/broker/handlers": "API",
    "ottla/cli/commands": "command",
    "ottla/pipeline/jobs": "job",
}
APIS = "ottla/protocol/messages"


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
    """What only makes a package, or starts one, is no file to read; nor is one that its room has for each API."""
    apis = {_name(module.path) for module in files.values() if _room(module.path) == APIS}
    return [
        _file(module)
        for module in files.values()
        if module.lines < FILE_LINES_MIN
        and _name(module.path) not in ("__init__", "__main__")
        and not (ONE_FILE_PER.get(_room(module.path)) == "API" and _name(module.path) in apis)
        and ONE_FILE_PER.get(_room(module.path), "API") == "API"
    ]


def _room(path: str) -> str:
    return path.rpartition("/")[0]


def _name(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".py")


def _file(module: SourceFile) -> Finding:
    return Finding(module.path, module.path, 1, f"{module.lines} lines")


def long_test_names(files: dict[str, SourceFile]) -> list[Finding]:
    findings = []
    for module in files.values():
        for qualified, node in definitions(module.tree):
            name = qualified.rpartition(".")[2]
            if name.startswith("test_") and len(name) > TEST_NAME_LENGTH_MAX:
                findings.append(Finding(f"{module.path} {name}", module.path, node.lineno, f"{name} is too long"))
    return findings


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


def nested_functions(files: dict[str, SourceFile]) -> list[Finding]:
    """In the control plane a function within a function is a continuation; what waits there is a coroutine."""
    findings = []
    for module in files.values():
        if module.path.startswith(CONTROL_PLANE):
            for outer in _outermost_functions(module.tree):
                for inner in ast.walk(outer):
                    if inner is not outer and isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                        key = f"{module.path} {outer.name}.{inner.name}"
                        findings.append(Finding(key, module.path, inner.lineno, f"{inner.name} in {outer.name}"))
    return findings


def _outermost_functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        else:
            yield from _outermost_functions(child)

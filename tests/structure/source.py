"""Python files as the checks of the structure see them: parsed, never imported."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.syntax import syntax_tree

ROOT = Path(__file__).parent.parent.parent
PACKAGE = "ottla"
# A module at the top, which is installed with the package and belongs to it.
PLUGIN = "pytest_ottla"
# What uses the package beside itself.
USERS = ("tests", "benchmarks", "examples", PLUGIN)


@dataclass(frozen=True)
class Finding:
    """`key` names it without line numbers, so that it stays the same while code around it changes."""

    key: str
    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


@dataclass(frozen=True)
class Imported:
    """`from module import name as local`; without `name`, the local name stands for the module."""

    local: str
    module: str
    name: str | None
    line: int
    is_deferred: bool = False
    """Inside a function, or under `if TYPE_CHECKING`: not when the importing module is."""
    is_for_types: bool = False
    """Under `if TYPE_CHECKING`."""


@dataclass
class SourceFile:
    name: str
    """Of the module, with dots."""
    path: str
    tree: ast.Module
    lines: int
    imports: list[Imported] = field(default_factory=list)

    @property
    def top_level(self) -> str:
        return self.name.partition(".")[0]


def load(root: Path = ROOT, packages: tuple[str, ...] = (PACKAGE,), suffix: str = ".py") -> dict[str, SourceFile]:
    """All modules of these packages by name, sorted by path. With the suffix `.pyi`, their stubs."""
    paths = [path for package in packages for path in sorted((root / package).rglob(f"*{suffix}"))]
    paths += [path for package in packages if (path := root / f"{package}{suffix}").is_file()]
    files = {module.name: module for path in paths for module in [_parse(root, path)]}
    for module in files.values():
        module.imports = list(_imports(module, files))
    return files


def _parse(root: Path, path: Path) -> SourceFile:
    relative = path.relative_to(root)
    text = path.read_text(encoding="utf-8")
    parts = relative.with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts) + ("-stub" if path.suffix == ".pyi" else "")
    return SourceFile(name, relative.as_posix(), syntax_tree(text, str(path)), len(text.splitlines()))


def _imports(module: SourceFile, files: dict[str, SourceFile]) -> Iterator[Imported]:
    """Everywhere in the file: also in functions, and under `if TYPE_CHECKING`."""
    for_types = set(_inside(module.tree, _is_for_types))
    deferred = for_types | set(_inside(module.tree, _is_function))
    for node in ast.walk(module.tree):
        where = (node in deferred, node in for_types)
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Imported(alias.asname or alias.name, alias.name, None, node.lineno, *where)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.path}:{node.lineno}: relative imports are not understood here"
            assert node.module is not None, "an absolute import names its module"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                if submodule in files:
                    yield Imported(alias.asname or alias.name, submodule, None, alias.lineno, *where)
                else:
                    yield Imported(alias.asname or alias.name, node.module, alias.name, alias.lineno, *where)


def _inside(tree: ast.Module, is_outer: Callable[[ast.AST], bool]) -> Iterator[ast.AST]:
    for outer in filter(is_outer, ast.walk(tree)):
        yield from ast.walk(outer)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definitions(tree: ast.Module) -> Iterator[tuple[str, Definition]]:
    """Functions and classes at any depth, with their qualified names."""

    def inside(node: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Definition):
                yield f"{prefix}{child.name}", child
                yield from inside(child, f"{prefix}{child.name}.")
            else:
                yield from inside(child, prefix)

    return inside(tree, "")

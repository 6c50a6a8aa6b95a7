"""Functions, classes, constants and methods of the package that the package itself does not use.

What stands at the top of a module is used where its module names it outside of its own definition, where a module that
imports it names it, or where the file that imports the module says `module.name`. A method is used where any attribute
of that name is read outside of its own body: one `close` that is called hides all that are not.

Counted as used without that: what users may import from `ottla` and `ottla.testing`, with its public methods; what a
decorator registers; methods that a base class from elsewhere calls; names in strings `"package.module:name"`, and in
the scripts of pyproject.toml; all methods of a class that looks for its own by a name it puts together.
"""

import ast
import importlib
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.structure.source import PACKAGE, PLUGIN, ROOT, Definition, Finding, SourceFile

# Decorators that change what they decorate, and do not keep it anywhere. All others are taken to register it.
PLAIN_DECORATORS = {
    "abstractmethod",
    "asynccontextmanager",
    "cache",
    "cached_property",
    "classmethod",
    "contextmanager",
    "dataclass",
    "final",
    "lru_cache",
    "override",
    "property",
    "runtime_checkable",
    "setter",
    "staticmethod",
    "total_ordering",
    "unique",
    "wraps",
}
DOTTED = re.compile(r"(\w+(?:\.\w+)+):(\w+)")
WORD = re.compile(r"[A-Za-z_]\w*")
# Packages from which users import.
OFFERING = (PACKAGE, f"{PACKAGE}.testing")
BY_NAME = {"getattr", "hasattr", "setattr", "attrgetter", "methodcaller"}
# Handlers are imported by names that the table of APIs puts together.
IMPORTED_BY_TABLE = {"handle"}


@dataclass
class Symbol:
    module: SourceFile
    name: str
    """With its class, for a method."""
    node: ast.AST
    line: int
    owner: ast.ClassDef | None = None
    users: set[str] = field(default_factory=set)
    """Packages: this one, tests, benchmarks, examples."""

    @property
    def own_lines(self) -> range:
        start = min([self.line, *(each.lineno for each in getattr(self.node, "decorator_list", []))])
        return range(start, (getattr(self.node, "end_lineno", None) or self.line) + 1)


def unused(files: dict[str, SourceFile], users: dict[str, SourceFile]) -> list[Finding]:
    """Of `files`. `users` are other modules that use them: the package's own stubs, and packages beside it."""
    symbols = [symbol for module in files.values() for symbol in _symbols(module)]
    top_level = {(each.module.name, each.name): each for each in symbols if each.owner is None}
    methods: dict[str, list[Symbol]] = defaultdict(list)
    for symbol in symbols:
        if symbol.owner is not None:
            methods[symbol.name.rpartition(".")[2]].append(symbol)
    resolver = _Resolver({**files, **users}, top_level)
    for module in [*files.values(), *users.values()]:
        _Uses(module, resolver, methods).note()
    public = _public(files, resolver)
    return [
        Finding(f"{each.module.path} {each.name}", each.module.path, each.line, _what(each))
        for each in symbols
        if not each.users & {PACKAGE, PLUGIN} and not _is_exempt(each, files, public)
    ]


def _what(symbol: Symbol) -> str:
    users = ", ".join(sorted(symbol.users))
    return f"{symbol.name} is used by {users} alone" if users else f"{symbol.name} is not used"


# What there is.


def _symbols(module: SourceFile) -> Iterator[Symbol]:
    for node in _statements(module.tree):
        if isinstance(node, Definition):
            yield Symbol(module, node.name, node, node.lineno)
            if isinstance(node, ast.ClassDef):
                yield from _methods(module, node, node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                # Several at once are the message classes of one table.
                if isinstance(target, ast.Name) and not target.id.startswith("__") and target.id != "_":
                    yield Symbol(module, target.id, node, node.lineno)


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """At the top, also under `if` and `try`."""
    pending: list[ast.stmt] = list(reversed(tree.body))
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.If | ast.Try):
            pending += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]


def _methods(module: SourceFile, owner: ast.ClassDef, prefix: str) -> Iterator[Symbol]:
    for node in owner.body:
        if isinstance(node, ast.ClassDef):
            yield from _methods(module, node, f"{prefix}.{node.name}")
        elif isinstance(node, Definition) and not (node.name.startswith("__") and node.name.endswith("__")):
            yield Symbol(module, f"{prefix}.{node.name}", node, node.lineno, owner)


# What is used.


class _Resolver:
    """Follows a name through the modules that import it and are imported from in turn."""

    def __init__(self, files: dict[str, SourceFile], top_level: dict[tuple[str, str], Symbol]) -> None:
        self._top_level = top_level
        self._origins = {
            (module.name, each.local): (each.module, each.name)
            for module in files.values()
            for each in module.imports
            if each.name is not None
        }

    def find(self, module: str, name: str) -> Symbol | None:
        seen = set()
        while (module, name) not in self._top_level:
            if (module, name) in seen or (module, name) not in self._origins:
                return None
            seen.add((module, name))
            module, name = self._origins[module, name]
        return self._top_level[module, name]


class _Uses:
    """Notes at each symbol who uses it, of what one file reads."""

    def __init__(self, module: SourceFile, resolver: _Resolver, methods: dict[str, list[Symbol]]) -> None:
        self._module = module
        self._resolver = resolver
        self._methods = methods
        self._aliases = {each.local: each.module for each in module.imports if each.name is None}

    def note(self) -> None:
        for name, line in _names_read(self._module.tree):
            self._use(self._resolver.find(self._module.name, name), line)
        for node in ast.walk(self._module.tree):
            match node:
                case ast.Attribute(value, attribute, ast.Load()):
                    self._use_attribute(value, attribute, node.lineno)
                case ast.MatchClass(kwd_attrs=attributes):
                    for attribute in attributes:
                        self._use_attribute(None, attribute, node.lineno)
                case ast.Constant(str(text)) if match := DOTTED.fullmatch(text):
                    self._use(self._resolver.find(*match.groups()), node.lineno)
                case ast.Call(function, [owner, *_]) if _last_name(function) in BY_NAME:
                    for text, line in _texts(node):
                        self._use_attribute(owner, text, line)

    def _use_attribute(self, owner: ast.AST | None, attribute: str, line: int) -> None:
        for symbol in self._methods.get(attribute, ()):
            self._use(symbol, line)
        module = self._aliases.get(_dotted(owner))
        if module is not None:
            self._use(self._resolver.find(module, attribute), line)

    def _use(self, symbol: Symbol | None, line: int) -> None:
        if symbol is not None and not (symbol.module is self._module and line in symbol.own_lines):
            symbol.users.add(self._module.top_level)


def _names_read(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Also in annotations that are strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id, node.lineno
        for annotation in _annotations(node):
            for text, line in _texts(annotation):
                for word in WORD.findall(text):
                    yield word, line


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
        yield node.annotation
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
        yield node.returns
    elif isinstance(node, ast.Call) and _last_name(node.func) == "cast" and node.args:
        yield node.args[0]
    elif isinstance(node, ast.Subscript):
        yield node.slice
    if isinstance(node, ast.AnnAssign) and _last_name(node.annotation) == "TypeAlias" and node.value is not None:
        yield node.value


def _texts(node: ast.AST) -> Iterator[tuple[str, int]]:
    for child in ast.walk(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.value, child.lineno


def _dotted(node: ast.AST | None) -> str:
    """`a.b.c`, or nothing for what is no such chain."""
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return node.id if isinstance(node, ast.Name) else ""


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


# What is used by others.


def _public(files: dict[str, SourceFile], resolver: _Resolver) -> set[int]:
    """Nodes of what the package and its kit for tests offer, and of the scripts of pyproject.toml."""
    offering = [files[name] for name in OFFERING if name in files]
    found = [resolver.find(module.name, each.local) for module in offering for each in module.imports]
    found += [resolver.find(*target.split(":")) for target in _scripts()]
    return {id(symbol.node) for symbol in found if symbol is not None}


@cache
def _scripts() -> tuple[str, ...]:
    return tuple(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("scripts", {}).values())


def _is_exempt(symbol: Symbol, files: dict[str, SourceFile], public: set[int]) -> bool:
    node, owner = symbol.node, symbol.owner
    if id(node) in public or symbol.name in IMPORTED_BY_TABLE:
        return True
    if any(_last_name(each) not in PLAIN_DECORATORS for each in getattr(node, "decorator_list", [])):
        return True
    if isinstance(node, ast.FunctionDef) and node.name.startswith("__"):
        return True
    if owner is None:
        return False
    name = symbol.name.rpartition(".")[2]
    is_public_method = id(owner) in public and not name.startswith("_")
    return is_public_method or _looks_up_its_own(owner) or _is_called_by_base(symbol.module, owner, name, files)


def _looks_up_its_own(owner: ast.ClassDef) -> bool:
    """`getattr(self, f"...")`"""
    return any(
        isinstance(node, ast.Call)
        and _last_name(node.func) == "getattr"
        and ast.unparse(node.args[0]) == "self"
        and isinstance(node.args[1], ast.JoinedStr)
        for node in ast.walk(owner)
    )


def _is_called_by_base(module: SourceFile, owner: ast.ClassDef, name: str, files: dict[str, SourceFile]) -> bool:
    """Whether a base class from outside has such a method. One that cannot be imported here may have any."""
    for base in owner.bases:
        dotted = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
        local, _, rest = dotted.partition(".")
        inner = next((n for n in _statements(module.tree) if isinstance(n, ast.ClassDef) and n.name == local), None)
        imported = next((each for each in module.imports if each.local == local), None)
        if inner is not None:
            if _is_called_by_base(module, inner, name, files):
                return True
        elif imported is not None and imported.module in files:
            if imported.name is not None and _inherited(files[imported.module], imported.name, name, files):
                return True
        elif imported is not None and _has(imported.module, ".".join(filter(None, [imported.name, rest])), name):
            return True
    return False


def _inherited(module: SourceFile, class_name: str, name: str, files: dict[str, SourceFile]) -> bool:
    node = next((n for n in _statements(module.tree) if isinstance(n, ast.ClassDef) and n.name == class_name), None)
    return node is not None and _is_called_by_base(module, node, name, files)


@cache
def _has(module: str, path: str, name: str) -> bool:
    try:
        found: Any = importlib.import_module(module)
    except ImportError:
        return True
    for part in filter(None, path.split(".")):
        found = getattr(found, part, None)
    return hasattr(found, name)

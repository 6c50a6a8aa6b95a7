"""`python -m tests.simulation.reach --seeds 20`: which functions and error codes the simulations never reach.

Counted are the functions of the rooms that decide and store. A function counts as reached when a run has entered it.
`unreached.txt` lists those that no simulation can enter, each with the reason. The list is checked: a listed function
that is entered, or that does not exist, is an error.
"""

import argparse
import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import ottla
from ottla.protocol.client import WireClient
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.schema import Message, fields_of
from tests.simulation.__main__ import WORLDS
from tests.syntax import syntax_tree

PACKAGE = Path(ottla.__file__).parent
ROOMS = (
    "storage",
    "replication",
    "cluster",
    "coordinator",
    "broker/authorization",
    "broker/replicas",
    "broker/metadata",
    "broker/upkeep",
)
EXCUSES = Path(__file__).with_name("unreached.txt")
# Code of these rooms names error codes that it is answered, not those that it answers.
CLIENT_ROOMS = {"cli", "pipeline", "testing"}


@dataclass
class Reached:
    """Functions as `module:qualified name`, and the codes that some response carried."""

    functions: set[str] = field(default_factory=set)
    codes: set[int] = field(default_factory=set)
    failed_seeds: list[str] = field(default_factory=list)

    def add(self, other: "Reached") -> None:
        self.functions |= other.functions
        self.codes |= other.codes
        self.failed_seeds += other.failed_seeds


@dataclass
class Excuses:
    patterns: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> "Excuses":
        """Lines `pattern -- reason`. Raises ValueError for a line without a reason."""
        patterns = {}
        for line in text.splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            pattern, separator, reason = line.partition(" -- ")
            if not separator or not reason.strip():
                raise ValueError(f"no reason given: {line}")
            patterns[pattern.strip()] = reason.strip()
        return cls(patterns)

    def excuse(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.patterns)

    def mistakes(self, defined: Iterable[str], reached: set[str]) -> list[str]:
        names = list(defined)
        wrong = []
        for pattern in self.patterns:
            matching = [name for name in names if fnmatchcase(name, pattern)]
            if not matching:
                wrong.append(f"{pattern}: there is no such function")
            wrong += [f"{name}: is listed and was entered" for name in matching if name in reached]
        return wrong


# What is there to be reached.


def defined_functions(room: str) -> list[str]:
    """In the order of the source."""
    return [name for path in sorted((PACKAGE / room).rglob("*.py")) for name in _functions_of(path)]


def _functions_of(path: Path) -> list[str]:
    module = module_of(str(path))
    return list(dict.fromkeys(f"{module}:{name}" for name in functions_in(syntax_tree(path.read_text()))))


def module_of(filename: str) -> str:
    return ".".join(Path(filename).relative_to(PACKAGE.parent).with_suffix("").parts)


def functions_in(tree: ast.AST, prefix: str = "") -> Iterator[str]:
    """Qualified names of functions with a body, as Python gives them to code objects."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not _is_declaration(node):
                yield prefix + node.name
            yield from functions_in(node, f"{prefix}{node.name}.<locals>.")
        elif isinstance(node, ast.ClassDef):
            yield from functions_in(node, f"{prefix}{node.name}.")
        else:
            yield from functions_in(node, prefix)


def _is_declaration(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A method of a protocol: a docstring, an ellipsis, or nothing but an error."""
    return all(
        (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        or (isinstance(statement, ast.Raise) and "NotImplementedError" in ast.dump(statement))
        for statement in function.body
    )


def answerable_codes() -> set[ErrorCode]:
    """Codes that the broker's own source names or raises."""
    classes = {cls.__name__: cls.code for cls in KafkaError.__subclasses__()}
    codes = set()
    for path in PACKAGE.rglob("*.py"):
        if path.name == "errors.py" or path.relative_to(PACKAGE).parts[0] in CLIENT_ROOMS:
            continue
        for node in ast.walk(syntax_tree(path.read_text())):
            match node:
                case ast.Attribute(value=ast.Name(id="ErrorCode"), attr=name) if name in ErrorCode.__members__:
                    codes.add(ErrorCode[name])
                case ast.Raise(exc=ast.Call(func=ast.Name(id=name)) | ast.Name(id=name)) if name in classes:
                    codes.add(classes[name])
    return codes


# What is reached.


def run_seed(world: str, seed: int) -> Reached:
    reached = Reached()
    entered: set[CodeType] = set()
    with recorded_codes(reached.codes), recorded_code(entered.add):
        outcome = WORLDS[world](seed).run()
    prefix = str(PACKAGE)
    reached.functions = {
        f"{module_of(code.co_filename)}:{code.co_qualname}" for code in entered if code.co_filename.startswith(prefix)
    }
    if outcome.violations:
        reached.failed_seeds.append(f"{world} {seed}: {outcome.violations[0]}")
    return reached


@contextmanager
def recorded_code(record: Callable[[CodeType], object]) -> Iterator[None]:
    """Calls `record` with the code of every function that begins; where Python can, only the first time."""
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        # A tracer that returns None is asked at calls only, not at lines and not at calls of C functions.
        before = sys.gettrace()
        sys.settrace(lambda frame, *_: record(frame.f_code))  # type: ignore[arg-type]
        try:
            yield
        finally:
            sys.settrace(before)
        return
    tool, start = monitoring.COVERAGE_ID, monitoring.events.PY_START

    def begin(code: CodeType, _: int) -> object:
        record(code)
        return monitoring.DISABLE

    monitoring.use_tool_id(tool, "reach of the simulations")
    monitoring.register_callback(tool, start, begin)
    monitoring.set_events(tool, start)
    monitoring.restart_events()
    try:
        yield
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)


@contextmanager
def recorded_codes(codes: set[int]) -> Iterator[None]:
    """Collects the error codes of all responses that clients and brokers receive."""
    receive = WireClient.receive

    def received(self: WireClient, payload: Any) -> Any:
        response = receive(self, payload)
        _collect_codes(response, codes)
        return response

    WireClient.receive = received  # type: ignore[method-assign]
    try:
        yield
    finally:
        WireClient.receive = receive  # type: ignore[method-assign]


def _collect_codes(message: Message, codes: set[int]) -> None:
    for each in fields_of(type(message)):
        value = getattr(message, each.name)
        if each.name.endswith("error_code"):
            codes.add(value)
        elif isinstance(value, Message):
            _collect_codes(value, codes)
        elif isinstance(value, list):
            for item in value:
                if not isinstance(item, Message):
                    break
                _collect_codes(item, codes)


# The report.


def main() -> int:
    options = _parse_options()
    reached = Reached()
    seeds = range(options.first, options.first + options.seeds)
    for world in WORLDS:
        for each in _results(partial(run_seed, world), seeds, options.jobs):
            reached.add(each)
    excuses = Excuses.parse(EXCUSES.read_text())
    share = _report_functions(reached.functions, excuses)
    _report_codes(reached.codes)
    mistakes = excuses.mistakes([name for room in ROOMS for name in defined_functions(room)], reached.functions)
    mistakes += [f"failed seed of {failed}" for failed in reached.failed_seeds]
    if share < options.at_least:
        mistakes.append(f"{share:.1f} % of the functions, expected are {options.at_least} %")
    print("\n".join(mistakes))
    return 1 if mistakes else 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.reach", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many of each world (20)")
    parser.add_argument("--first", type=int, default=0, help="the first one (0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--at-least", type=float, default=0, help="fail below this percentage of functions (0)")
    return parser.parse_args()


def _results(run: Callable[[int], Reached], seeds: range, jobs: int) -> Iterator[Reached]:
    if jobs == 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, seeds, chunksize=1)


def _report_functions(reached: set[str], excuses: Excuses) -> float:
    """Prints what was never entered; the percentage of what was, over all rooms."""
    lines, all_counted, all_entered = [], 0, 0
    for room in ROOMS:
        counted = [name for name in defined_functions(room) if not excuses.excuse(name)]
        missed = [name for name in counted if name not in reached]
        print(*(f"never entered: {name}" for name in missed), sep="\n")
        entered = len(counted) - len(missed)
        lines.append(f"{room:16} {100 * entered / max(len(counted), 1):5.1f} %  ({entered} of {len(counted)})")
        all_counted, all_entered = all_counted + len(counted), all_entered + entered
    share = 100 * all_entered / all_counted
    print(*lines, f"{'all':16} {share:5.1f} %  ({all_entered} of {all_counted})", sep="\n")
    return share


def _report_codes(reached: set[int]) -> None:
    missed = sorted(code.name for code in answerable_codes() if code not in reached)
    print(f"error codes never answered ({len(missed)}): {', '.join(missed)}")


if __name__ == "__main__":
    sys.exit(main())

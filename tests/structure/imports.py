"""What imports what: circles, imports for type checkers alone, and which modules hold the whole `Broker`."""

from collections.abc import Iterator

from tests.structure.source import Finding, SourceFile

BROKER_MODULE = "ottla.broker.broker"
# They stand above brokers, and make them. What a broker consists of is made by ottla.broker.assembly, which gives no
# part the whole.
MAKERS_OF_BROKERS = {
    "ottla.broker.local_cluster": "several brokers in one process, which it starts, stops and kills",
    "ottla.cli.operations.serve": "the broker of `ottla serve`",
    "ottla.testing.embedded": "the brokers of other programs",
    "ottla.testing.hosting": "the brokers of users' tests",
}

Graph = dict[str, dict[str, int]]


def import_graph(files: dict[str, SourceFile], *, at_import: bool = False) -> Graph:
    """Which modules of `files` each imports, and in which line first; with `at_import`, only what is imported when the
    module is, and not those in functions and for type checkers."""
    graph: Graph = {}
    for module in files.values():
        targets = graph[module.name] = {}
        for imported in module.imports:
            if imported.module not in files or imported.module == module.name:
                continue
            if not (at_import and imported.is_deferred):
                targets[imported.module] = min(imported.line, targets.get(imported.module, imported.line))
    return graph


def circles(files: dict[str, SourceFile]) -> list[Finding]:
    """Every import between two modules that import each other, directly or by way of others."""
    graph = import_graph(files)
    findings = []
    for component in components(graph):
        for source in sorted(component):
            for target, line in sorted(graph[source].items()):
                if target in component:
                    what = f"{source} imports {target}, in a circle of {len(component)} modules"
                    findings.append(Finding(f"{source} -> {target}", files[source].path, line, what))
    return findings


def components(graph: Graph) -> list[set[str]]:
    """Sets of two modules or more of which each reaches each (Tarjan's strongly connected components)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []
    for root in graph:
        if root in numbers:
            continue
        path: list[tuple[str, Iterator[str]]] = [(root, iter(graph[root]))]
        numbers[root] = lowest[root] = len(numbers)
        stack.append(root)
        while path:
            node, targets = path[-1]
            target = next(targets, None)
            if target is None:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
                if lowest[node] == numbers[node]:
                    index = stack.index(node)
                    if len(stack) - index > 1:
                        found.append(set(stack[index:]))
                    del stack[index:]
            elif target not in numbers:
                numbers[target] = lowest[target] = len(numbers)
                stack.append(target)
                path.append((target, iter(graph[target])))
            elif target in stack:
                lowest[node] = min(lowest[node], numbers[target])
    return found


def imports_for_types(files: dict[str, SourceFile]) -> list[Finding]:
    """Imports under `if TYPE_CHECKING` that save no time: of modules that are imported with this one anyway, or with
    every broker, or that are none of the package. Those that are left are lazy: a broker starts without them."""
    graph = import_graph(files, at_import=True)
    of_every_broker = reachable(graph, BROKER_MODULE)
    findings = []
    for module in files.values():
        for_types = [each for each in module.imports if each.is_for_types]
        if not for_types:
            continue
        loaded = reachable(graph, module.name)
        if module.name.startswith("ottla.broker."):
            loaded |= of_every_broker
        for each in for_types:
            if each.module in loaded or each.module not in files:
                what = f"{module.name} imports {each.module} for type checkers alone, which saves nothing"
                findings.append(Finding(f"{module.name} -> {each.module}", module.path, each.line, what))
    return findings


def reachable(graph: Graph, start: str) -> set[str]:
    """What is imported with a module, directly or by way of others."""
    found: set[str] = set()
    pending = [start]
    while pending:
        for target in graph.get(pending.pop(), ()):
            if target not in found:
                found.add(target)
                pending.append(target)
    return found


def whole_broker(files: dict[str, SourceFile], broker_module: str = BROKER_MODULE) -> list[Finding]:
    """Files that import the class `Broker`, or all of its module, and do not make brokers."""
    defined = files.get(broker_module)
    assert defined is not None, f"{broker_module} has moved: say here where the class Broker is"
    findings = []
    for module in files.values():
        lines = [each.line for each in module.imports if each.module == broker_module and each.name in (None, "Broker")]
        if lines and module.name not in MAKERS_OF_BROKERS:
            findings.append(Finding(module.path, module.path, min(lines), f"{module.name} holds the whole Broker"))
    return findings

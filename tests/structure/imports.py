"""What imports what: circles, and who takes the whole `Broker`."""

from collections.abc import Iterator

from tests.structure.source import Finding, SourceFile

BROKER_MODULE = "ottla.broker.broker"

Graph = dict[str, dict[str, int]]


def import_graph(files: dict[str, SourceFile]) -> Graph:
    """Which modules of `files` each imports, and in which line first. Imports for type checkers count too."""
    graph: Graph = {}
    for module in files.values():
        targets = graph[module.name] = {}
        for imported in module.imports:
            if imported.module in files and imported.module != module.name:
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


def whole_broker(files: dict[str, SourceFile], broker_module: str = BROKER_MODULE) -> list[Finding]:
    """Files that import the class `Broker`, or all of its module."""
    defined = files.get(broker_module)
    assert defined is not None, f"{broker_module} has moved: say here where the class Broker is"
    findings = []
    for module in files.values():
        lines = [each.line for each in module.imports if each.module == broker_module and each.name in (None, "Broker")]
        if lines:
            findings.append(Finding(module.path, module.path, min(lines), f"{module.name} holds the whole Broker"))
    return findings

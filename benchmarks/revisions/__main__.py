"""What this tree costs beside an older one: `python -m benchmarks.revisions REVISION [PART ...]`.

Both trees' brokers get the same frames in turns, from one client, and are started again and again: two processes of
one program differ by some hundredths, by where their memory lies and how their dictionaries are ordered. A ratio is
the median over the starts. Where a quarter of them or more lie on each side of 1, the table says that no difference was
seen. The exit status is 1 when a row is above the target.

With `--set`, brokers of this tree alone have a property. With HEAD as the revision, ratios show what it costs. With
`--of`, another revision takes the place of this tree.

Rows that look into a broker, such as `steps` and `hops`, name its modules and cannot be compared.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks import processes
from benchmarks.revisions import lives, requests, volumes
from benchmarks.revisions.trees import Tree, TreeError, this_tree, tree_of
from benchmarks.revisions.turns import AT_MOST, Comparison, Measured, Row, Rows, by_runs, by_turns

ROUNDS = 9
# After each start. The first of them warms up, where there are several.
TURNS = 14
VOLUME_TURNS = 6
START_TURNS = 4
MEMBERS_TURNS = 5
# All but one of the rows of `bytecodes` are the same in each run.
BYTECODES_RUNS = 3
SUITE_RUNS = 5
# Suites that name nothing of a broker but its codec and its timers, by processor time.
RUN_SUITES = """
import json, time
time.perf_counter = time.process_time
from benchmarks import codec, timer
print(json.dumps([[f.name, f.unit, f.ours] for f in [*codec.figures(), *timer.figures()]]))
"""

Part = Callable[[Tree, Tree, int], Rows]


def main() -> int:
    parser = _parser()
    options = parser.parse_args()
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]}; there are {', '.join(PARTS)}")
    if options.rounds < 2:
        parser.error("one start of both says nothing of how far starts are apart: at least 2 rounds")
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        try:
            this = _compared(options.of, Path(directory) / "this", options.settings)
            older = tree_of(options.revision, Path(directory) / "older")
        except TreeError as error:
            print(error, file=sys.stderr)
            return 2
        comparisons: list[Comparison] = []
        for name in options.parts or PARTS:
            print(f"measuring {name} …", file=sys.stderr)
            rows = PARTS[name](this, older, options.rounds)
            comparisons += [Comparison(row, pairs, options.at_most) for row, pairs in rows.items()]
    _print(comparisons, this.name, older.name, options.markdown)
    missed = [f"{each.row.name} ({each.difference})" for each in comparisons if not each.meets_target]
    if missed:
        print(f"target missed: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


def _parser() -> argparse.ArgumentParser:
    description = "What this tree costs beside an older one, in the same run and in turns."
    parser = argparse.ArgumentParser(prog="python -m benchmarks.revisions", description=description)
    parser.add_argument("revision", help="of git, whose package `ottla` is the baseline")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"all if none is given: {', '.join(PARTS)}")
    parser.add_argument("--of", metavar="REVISION", help="whose package is compared, in place of the files here")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how often both are started (default: {ROUNDS})")
    parser.add_argument(
        "--set",
        action="append",
        dest="settings",
        metavar="KEY=VALUE",
        default=[],
        help="a property of this tree's brokers, and not of the others",
    )
    parser.add_argument("--at-most", type=float, default=AT_MOST, help=f"the target of each ratio (default: {AT_MOST})")
    parser.add_argument("--markdown", action="store_true", help="print the table as docs/benchmarks.md has it")
    return parser


def _compared(revision: str | None, directory: Path, settings: Sequence[str]) -> Tree:
    return this_tree(directory, settings) if revision is None else tree_of(revision, directory, settings=settings)


def _in_turns(prepare: Callable[[Tree], AbstractContextManager[Measured]], turns: int, *, pinned: bool = True) -> Part:
    def part(this: Tree, older: Tree, rounds: int) -> Rows:
        (processes.pin_client if pinned else processes.unpin)()
        return by_turns(this, older, prepare, rounds, turns)

    return part


def _in_runs(run: Callable[[Tree], dict[Row, float]], runs_max: int) -> Part:
    def part(this: Tree, older: Tree, rounds: int) -> Rows:
        processes.unpin()
        rows, missing = by_runs(this, older, run, min(rounds, runs_max))
        for name in sorted(row.name for row in missing):
            print(f"left out, for {older.name} does not have it: {name}", file=sys.stderr)
        return rows

    return part


def _bytecodes(tree: Tree) -> dict[Row, float]:
    counts = json.loads(tree.output("-m", "benchmarks.bytecodes", "--json", *tree.settings))
    return {Row(f"bytecodes of {name}", ""): float(sum(of.values())) for name, of in counts.items()}


def _suites(tree: Tree) -> dict[Row, float]:
    return {Row(name, unit): value for name, unit, value in json.loads(tree.output("-c", RUN_SUITES))}


PARTS: dict[str, Part] = {
    "requests": _in_turns(requests.of_one_broker, TURNS),
    "replicated": _in_turns(requests.of_three_brokers, TURNS),
    "volumes": _in_turns(volumes.of_one_broker, VOLUME_TURNS),
    "replicated_volumes": _in_turns(volumes.of_three_brokers, VOLUME_TURNS),
    "members": _in_turns(lives.joining_members, MEMBERS_TURNS),
    "starts": _in_turns(lives.starts, START_TURNS),
    "memory": _in_turns(lives.memory, 1),
    "idle": lives.idle,
    "suites": _in_runs(_suites, SUITE_RUNS),
    "bytecodes": _in_runs(_bytecodes, BYTECODES_RUNS),
}


def _print(comparisons: list[Comparison], this: str, older: str, markdown: bool) -> None:
    head = ("figure", this, older, "ratio", "quartiles", "difference", "target")
    rows = [head, *map(_cells, comparisons)]
    if markdown:
        rows.insert(1, ("---",) * len(head))
        print("\n".join(f"| {' | '.join(row)} |" for row in rows))
        return
    verdicts = ["", *("pass" if each.meets_target else "fail" for each in comparisons)]
    rows = [(*row, verdict) for row, verdict in zip(rows, verdicts, strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cells(c: Comparison) -> tuple[str, ...]:
    this, older = (_amount(statistics.median(values), c.row.unit) for values in zip(*c.pairs, strict=True))
    quartiles = f"{c.quartiles[0]:.3f} to {c.quartiles[1]:.3f}"
    return c.row.name, this, older, f"{c.ratio:.3f}", quartiles, c.difference, f"≤ {c.at_most:g}"


def _amount(value: float, unit: str) -> str:
    # Four digits of a large number would be written with an exponent.
    digits = f"{value:,.0f}" if value >= 10_000 else f"{value:,.4g}"
    return f"{digits} {unit}".strip()


if __name__ == "__main__":
    sys.exit(main())

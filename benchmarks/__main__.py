"""`python -m benchmarks [SUITE ...]`: every figure beside its baseline, measured in the same run.

`--markdown` prints the table as docs/benchmarks.md has it. The exit status is 1 when a figure misses its target.
"""

import argparse
import importlib
import sys

from benchmarks.figure import NO_BASELINE, Figure, NotMeasured

SUITES = (
    "bulk",
    "tls",
    "librdkafka",
    "requests",
    "bytecodes",
    "footprint",
    "pending_logins",
    "groups",
    "hops",
    "events",
    "admin_listener",
    "timer",
    "steps",
    "transaction_steps",
    "long_requests",
    "long_refusals",
    "codec",
    "replication",
    "idle_cluster",
    "embedded_cluster",
    "failover",
    "kafka",
    "transactions",
    "quotas",
    "authorizer",
    "protocols",
    "logins",
    "login_times",
    "alternatives",
    "testing",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Every figure beside its baseline.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"all if none is given: {', '.join(SUITES)}")
    parser.add_argument("--markdown", action="store_true", help="print the table as docs/benchmarks.md has it")
    options = parser.parse_args()
    unknown = [name for name in options.suites if name not in SUITES]
    if unknown:
        parser.error(f"there is no suite {unknown[0]}; there are {', '.join(SUITES)}")
    figures: list[Figure] = []
    for name in options.suites or SUITES:
        print(f"measuring {name} …", file=sys.stderr)
        try:
            figures += importlib.import_module(f"benchmarks.{name}").figures()
        except NotMeasured as reason:
            print(f"{name} is not measured: {reason}", file=sys.stderr)
    (_print_markdown if options.markdown else _print_table)(figures)
    missed = [figure.name for figure in figures if figure.meets_target is False]
    if missed:
        print(f"target missed: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


_VERDICTS = {True: "pass", False: "fail", None: ""}


def _rows(figures: list[Figure]) -> list[tuple[str, ...]]:
    head = ("figure", "Ottla", "baseline", "", "ratio", "target")
    return [head, *map(_row, figures)]


def _row(f: Figure) -> tuple[str, ...]:
    ours = f"{f.ours:,.4g} {f.unit}"
    if f.baseline == NO_BASELINE:
        return f.name, ours, NO_BASELINE, NO_BASELINE, NO_BASELINE, f.target
    return f.name, ours, f"{f.theirs:,.4g} {f.unit}", f.baseline, f"{f.ratio:.2f}", f.target


def _print_table(figures: list[Figure]) -> None:
    head, *rows = _rows(figures)
    rows = [(*head, ""), *((*row, _VERDICTS[figure.meets_target]) for row, figure in zip(rows, figures, strict=True))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_markdown(figures: list[Figure]) -> None:
    head, *rows = _rows(figures)
    print(f"| {' | '.join(head)} |\n| {' | '.join('---' for _ in head)} |")
    for row in rows:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    sys.exit(main())

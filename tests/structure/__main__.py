"""`python -m tests.structure [CHECK ... | all] [--update]`: how the package is built, in numbers.

Without a check: how much each of them finds. With checks: every place, as file:line. `--update` shortens the list of
exceptions to what is still found.
"""

import argparse
import sys

from tests.structure import source
from tests.structure.ratchet import CHECKS, EXCEPTIONS, build, differences, find, parse, reasons, updated


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.structure", description="The package's structure in numbers."
    )
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"list what it finds: all, {', '.join(CHECKS)}")
    parser.add_argument("--update", action="store_true", help="remove exceptions that are found no more")
    options = parser.parse_args()
    listed = tuple(CHECKS) if "all" in options.checks else tuple(options.checks)
    if unknown := [name for name in listed if name not in CHECKS]:
        parser.error(f"there is no check {unknown[0]}; there are {', '.join(CHECKS)}")
    found = find(source.load())
    text = EXCEPTIONS.read_text()
    allowed = parse(text)
    if options.update:
        allowed = updated(found, allowed)
        EXCEPTIONS.write_text(build(allowed, reasons(text)))
    for name in listed:
        print(f"{name}: {CHECKS[name][0]}")
        for each in found[name]:
            print(f"  {each}")
        print()
    wrong = {name: differences(findings, allowed[name]) for name, findings in found.items()}
    width = max(map(len, CHECKS))
    print(f"{'check':{width}}  found  listed")
    for name, findings in found.items():
        print(f"{name:{width}}  {len(findings):5}  {len(allowed[name]):6}  {CHECKS[name][0]}")
    for name, sentences in wrong.items():
        for sentence in sentences:
            print(f"{name}: {sentence}", file=sys.stderr)
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

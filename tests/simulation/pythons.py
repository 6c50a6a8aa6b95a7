"""`python -m tests.simulation.pythons --other .venv-other/bin/python`: do seeds take the same steps on two Pythons?

A seed that failed for one developer has to fail for the next. What asyncio does in how many steps differs from Python
to Python, and so may the order in which a library keeps something.
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence

from tests.simulation.__main__ import WORLDS


def main() -> int:
    options = _parse_options()
    pythons = (sys.executable, options.other)
    differ = 0
    for world in WORLDS:
        here, there = (hashes_of(run(python, world, options.seeds, options.first)) for python in pythons)
        other = differing(here, there)
        differ += len(other)
        for seed in other:
            print(f"{world}: seed {seed} is another story on {options.other}")
        print(f"{world}: {len(here) - len(other)} of {options.seeds} seeds took the same steps", flush=True)
        differ += len(here) != options.seeds
    return 1 if differ else 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.pythons", description=__doc__)
    parser.add_argument("--other", required=True, help="the other Python, in an environment with what tests need")
    parser.add_argument("--seeds", type=int, default=60, help="how many of each kind of world (60)")
    parser.add_argument("--first", type=int, default=0, help="the first one (0)")
    return parser.parse_args()


def run(python: str, world: str, seeds: int, first: int) -> str:
    """What the simulation prints. Seeds that fail have their hashes too."""
    command = [python, "-m", "tests.simulation", "--world", world, "--hashes"]
    counts = ["--seeds", str(seeds), "--first", str(first)]
    done = subprocess.run([*command, *counts], stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout


def hashes_of(printed: str) -> dict[int, str]:
    """By seed, of the lines `seed 7 HASH`."""
    lines = [line.split() for line in printed.splitlines() if line.startswith("seed ")]
    return {int(words[1]): words[2] for words in lines if len(words) == 3}


def differing(here: Mapping[int, str], there: Mapping[int, str]) -> Sequence[int]:
    """Seeds with another hash there, or none."""
    return [seed for seed, digest in here.items() if there.get(seed) != digest]


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.simulation --seeds 300`: runs worlds; says which seed failed and how to see it again.

There are three kinds: one broker, a cluster of three, and one broker with transactions. A seed of one is another story
than the same seed of another. Without `--world` the first two are run. Of a hundred seeds or more, each thing that
worlds are made to meet has to have happened in one at least.
"""

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.cluster.world import ClusterWorld
from tests.simulation.met import SEEDS_THAT_MEET_ALL, unmet
from tests.simulation.transactions import TransactionalWorld
from tests.simulation.world import Outcome, World

WORLDS: dict[str, type[World] | type[ClusterWorld]] = {
    "broker": World,
    "cluster": ClusterWorld,
    "transactions": TransactionalWorld,
}
BOTH = ("broker", "cluster")
GARBAGE_THRESHOLDS = (20_000, 20, 20)


def main() -> int:
    options = _parse_options()
    # A world leaves little garbage; what stays for all of them is not to be looked through again and again.
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    worlds = BOTH if options.world == "both" else [options.world]
    return max(_run_all(options, world) for world in worlds)


def _run_all(options: argparse.Namespace, world: str) -> int:
    started = time.monotonic()
    counts: Counter[str] = Counter()
    failed = steps = virtual_ms = 0
    seeds = range(options.first, options.first + options.seeds)
    for outcome in _outcomes(options, world, seeds):
        counts.update(outcome.counts)
        steps += outcome.steps
        virtual_ms += outcome.virtual_ms
        if options.hashes:
            print(f"seed {outcome.seed} {outcome.digest}")
        if options.trace:
            print("\n".join(outcome.lines))
        if outcome.violations:
            failed += 1
            _report(world, outcome)
    done = ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items()))
    print(
        f"{steps:,} steps, {virtual_ms / 60_000:,.0f} simulated minutes in {time.monotonic() - started:.1f} s: {done}"
    )
    missing = unmet(world, counts) if len(seeds) >= SEEDS_THAT_MEET_ALL else []
    if missing:
        print(f"{world}: no seed met {', '.join(missing)}")
    print(f"{world}: {len(seeds) - failed} of {len(seeds)} seeds passed", flush=True)
    return 1 if failed or missing else 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--world", choices=[*WORLDS, "both"], default="both", help="which kind (both)")
    parser.add_argument("--seeds", type=int, default=20, help="how many (20)")
    parser.add_argument("--first", type=int, default=0, help="the first one (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--hashes", action="store_true", help="print the hash of each run's trace")
    parser.add_argument("--trace", action="store_true", help="print the traces themselves")
    return parser.parse_args()


def _outcomes(options: argparse.Namespace, world: str, seeds: range) -> Iterator[Outcome]:
    if options.jobs == 1 or len(seeds) == 1:
        yield from (_run(world, seed, options.trace) for seed in seeds)
        return
    with ProcessPoolExecutor(options.jobs) as pool:
        count = len(seeds)
        yield from pool.map(_run, [world] * count, seeds, [options.trace] * count, chunksize=4)


def _run(world: str, seed: int, keep_trace: bool) -> Outcome:
    return WORLDS[world](seed, keep_trace=keep_trace).run()


def _report(world: str, outcome: Outcome) -> None:
    print(f"seed {outcome.seed} FAILED after {outcome.steps} steps, {outcome.virtual_ms} ms:")
    for violation in outcome.violations[:5]:
        print(f"    {violation}")
    print(f"    again: python -m tests.simulation --world {world} --seeds 1 --first {outcome.seed} --trace", flush=True)


if __name__ == "__main__":
    sys.exit(main())

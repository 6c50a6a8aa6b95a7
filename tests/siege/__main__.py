"""`python -m tests.siege --minutes N --attacks NAMES --seed S`: attacks on one broker; says what they did to others.

The exit status is 1 unless all promises held for the well-behaved clients: no acknowledged record lost, no session
expired, p99 of produce within five times of what it was before the attack, memory below the limit, and everything
released afterwards. What failed keeps its directory, with histories, logs and data.
"""

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.siege import siege
from tests.siege.attacks import ATTACKS
from tests.siege.broker import can_mount
from tests.siege.verdict import Report, table

SHOWN_MAX = 40


def main() -> int:
    options = _parse_options()
    seed = options.seed or str(random.SystemRandom().randrange(1_000_000))
    chosen = [ATTACKS[name] for name in options.attacks]
    if not can_mount():
        for attack in [each for each in chosen if each.needs_small_disk]:
            print(f"no {attack.name}: this user may not mount a small disk")
            chosen.remove(attack)
    directory = Path(tempfile.mkdtemp(prefix=f"ottla-siege-{seed}-"))
    print(f"siege of seed {seed}, {options.minutes:g} minutes, {siege.MEMORY_MIB} MiB (RLIMIT_DATA), in {directory}")
    broken: list[str] = []
    for small_disk in (False, True):
        attacks = [attack for attack in chosen if attack.needs_small_disk is small_disk]
        if attacks:
            report = siege.run(
                directory / ("small-disk" if small_disk else "broker"),
                attacks,
                seed=seed,
                duration_s=options.minutes * 60 * len(attacks) / len(chosen),
                waits_to_the_end=not options.short,
            )
            _print(report)
            broken += report.broken()
    for sentence in broken[:SHOWN_MAX]:
        print(f"BROKEN {sentence}")
    if broken:
        print(f"kept in {directory}; again: python -m tests.siege --minutes {options.minutes:g} --seed {seed}")
        return 1
    if not options.keep:
        shutil.rmtree(directory)
    return 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.siege", description=__doc__)
    parser.add_argument("--minutes", type=float, default=4, help="for all attacks together (4)")
    parser.add_argument("--attacks", nargs="+", choices=list(ATTACKS), default=list(ATTACKS), metavar="NAME")
    parser.add_argument("--seed", help="of what the attacks draw")
    parser.add_argument("--short", action="store_true", help="do not wait at the end for what is kept for minutes")
    parser.add_argument("--keep", action="store_true", help="the directory of a siege that was withstood, too")
    return parser.parse_args()


def _print(report: Report) -> None:
    for line in table(report.rounds):
        print(line)
    for each in report.rounds:
        print(f"{each.attack.name}: {', '.join(f'{count:,} {what}' for what, count in each.done.items())}")
    for name, usage in (("at first", report.at_first), ("at last", report.at_last)):
        if usage is not None:
            counts = ", ".join(f"{count:,} {what}" for what, count in usage.counts.items())
            print(f"{name}: {usage.resident_bytes >> 20} MiB, {usage.descriptors} descriptors, {counts}")


if __name__ == "__main__":
    sys.exit(main())

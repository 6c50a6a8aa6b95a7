"""`python -m tests.storm --minutes N --seed S`: brokers killed, paused and stopped; says what became of the data.

The exit status is 1 unless nothing was lost, duplicated, reordered or moved back, and all replicas are alike. What
failed keeps its directory, with histories, logs and data.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.cluster_processes import ETCD_MISSING, etcd_is_installed
from tests.histories.checker import Kind
from tests.storm.faults import Action, plan
from tests.storm.storm import Outcome, run

ROWS = {
    "lost": {Kind.LOST},
    "duplicated": {Kind.DUPLICATED},
    "reordered": {Kind.REORDERED},
    "at another offset": {Kind.MOVED, Kind.HOLE},
    "read, then gone": {Kind.VANISHED},
    "not sent": {Kind.INVENTED, Kind.REFUSED_BUT_WRITTEN},
    "skipped by a consumer": {Kind.SKIPPED},
    "ends that fell": {Kind.END_FELL},
    "committed offsets moved back": {Kind.COMMIT_LOST, Kind.COMMIT_MOVED_BACK, Kind.COMMIT_INVENTED},
}
SHOWN_MAX = 20


def main() -> int:
    options = _parse_options()
    if options.brokers > 1 and not etcd_is_installed():
        print(f"no storm: {ETCD_MISSING}")
        return 0
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    directory = Path(tempfile.mkdtemp(prefix=f"ottla-storm-{seed}-"))
    duration_s = options.minutes * 60
    steps = plan(seed, duration_s, range(1, options.brokers + 1))
    print(f"storm of seed {seed}, {options.minutes:g} minutes, {len(steps)} steps, in {directory}", flush=True)
    (directory / "plan.txt").write_text("".join(f"{step}\n" for step in steps))
    started = time.monotonic()
    outcome = run(directory, steps, duration_s=duration_s, brokers=options.brokers, records_per_s=options.records_per_s)
    _print_table(outcome, time.monotonic() - started)
    if not outcome.violations and not outcome.failures:
        if not options.keep:
            shutil.rmtree(directory)
        return 0
    _print_complaints(outcome)
    print(f"kept in {directory}; again: python -m tests.storm --minutes {options.minutes:g} --seed {seed}")
    return 1


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2, help="how long (2)")
    parser.add_argument("--seed", type=int, help="of what is done when, to which broker")
    parser.add_argument("--brokers", type=int, default=3, help="processes; one alone needs no etcd (3)")
    parser.add_argument("--records-per-s", type=int, default=200, help="of each producer (200)")
    parser.add_argument("--keep", action="store_true", help="the directory of a storm that was passed, too")
    return parser.parse_args()


def _print_table(outcome: Outcome, took_s: float) -> None:
    found = Counter(violation.kind for violation in outcome.violations)
    etcd = outcome.done_to_etcd
    rows: dict[str, object] = {
        "kills": outcome.done[Action.KILL],
        "pauses": outcome.done[Action.PAUSE],
        "clean stops": outcome.done[Action.STOP],
        "leases revoked": outcome.done[Action.REVOKE_LEASE],
        "etcd: members killed, paused": f"{etcd[Action.KILL]}, {etcd[Action.PAUSE]}",
        "etcd: leaders moved, compactions": f"{etcd[Action.MOVE_LEADER]}, {etcd[Action.COMPACT]}",
        **outcome.counts,
        "longest time without an acknowledgement": f"{outcome.longest_silence_s:.1f} s",
        "a transaction left open was open for": f"{outcome.longest_open_s:.1f} s",
        **{name: sum(found[kind] for kind in kinds) for name, kinds in ROWS.items()},
        "other failures": len(outcome.failures),
        "took": f"{took_s:.0f} s",
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name.ljust(width)}  {value:,}" if isinstance(value, int) else f"{name.ljust(width)}  {value}")


def _print_complaints(outcome: Outcome) -> None:
    for failure in outcome.failures[:SHOWN_MAX]:
        print(f"FAILED {failure}")
    for violation in outcome.violations[:SHOWN_MAX]:
        print(f"VIOLATED {violation}")
    hidden = max(0, len(outcome.failures) - SHOWN_MAX) + max(0, len(outcome.violations) - SHOWN_MAX)
    if hidden:
        print(f"and {hidden} more")


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.differential --exchanges N --seed S`: the same requests for Ottla and for Apache Kafka 4.1.

What they answer differently, and is not among the intended differences, is printed with its request; the exit status is
then 1. `--episode` repeats one episode and prints whole requests. Without it and `--api`, both play the scripts of
transactions at the end.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterable, Iterator

from benchmarks.figure import NotMeasured
from tests.differential.brokers import both, restore_transaction_version
from tests.differential.connection import Address
from tests.differential.dialogue import Dialogue
from tests.differential.episode import Episode
from tests.differential.exchange import Exchange
from tests.differential.intended import name_of
from tests.differential.readiness import Barrier, Ranges, shared_ranges, until_coordinators_serve
from tests.differential.report import Report
from tests.differential.transaction_dialogue import TransactionDialogue
from tests.differential.transcripts import INTENDED, INTENDED_AT_LEVEL_2, differing, transcripts

DIALOGUE_EVERY = 4


def main() -> int:
    options = _parse_options()
    started = time.monotonic()
    try:
        with both() as addresses:
            ready_s = time.monotonic() - started
            is_whole = options.episode is None and not options.api
            report = run(addresses, options, Barrier(addresses[1]))
            differing_scripts = print_differing_scripts(addresses) if is_whole else 0
    except NotMeasured as reason:
        print(f"no comparison: {reason}")
        return 0
    report.print(time.monotonic() - started, ready_s)
    return 1 if report.unexpected or differing_scripts else 0


def print_differing_scripts(addresses: tuple[Address, Address]) -> int:
    ours, theirs = (transcripts(address) for address in addresses)
    unexpected = [each for each in differing(ours, theirs) if each not in INTENDED | INTENDED_AT_LEVEL_2]
    for each in unexpected:
        print(f"DIFFERENT script {each.script}: ours {each.ours!r}, Kafka's {each.theirs!r}")
    print(f"{len(ours)} scripts of transactions, {sum(map(len, ours.values()))} lines, {len(unexpected)} different")
    return len(unexpected)


def run(addresses: tuple[Address, Address], options: argparse.Namespace, barrier: Barrier | None) -> Report:
    """As many episodes as it takes for so many exchanges; `barrier` is that of a broker of Kafka's."""
    report = Report(options.seed, shows_whole_requests=options.episode is not None)
    for number, exchange in _exchanges(addresses, options, barrier):
        report.add(number, exchange)
    return report


def _exchanges(
    addresses: tuple[Address, Address], options: argparse.Namespace, barrier: Barrier | None
) -> Iterator[tuple[int, Exchange]]:
    ranges = shared_ranges(addresses)
    only = set(options.api) if options.api else None
    until_coordinators_serve(addresses)
    left, number = options.exchanges, options.episode or 0
    while left > 0:
        found: Iterable[Exchange]
        if number % DIALOGUE_EVERY == 0 and only is None:
            found = _dialogue(number, options.seed, addresses, ranges)
        elif number % DIALOGUE_EVERY == 1 and only is None:
            for address in addresses:
                restore_transaction_version(address)
            found = TransactionDialogue(number, options.seed, addresses, barrier, ranges).run()
        else:
            found = _episode(number, options.seed, addresses, barrier, ranges, only)
        for exchange in found:
            left -= 1
            yield number, exchange
        if options.episode is not None:
            return
        number += 1


def _episode(
    number: int,
    seed: int,
    addresses: tuple[Address, Address],
    barrier: Barrier | None,
    ranges: Ranges,
    only: set[int] | None,
) -> list[Exchange]:
    """One that differs is held again too: on a busy machine Kafka's broker may learn late what its controller has
    done."""
    exchanges = list(Episode(number, seed, addresses, barrier, ranges).run(only))
    if not _is_odd(exchanges):
        return exchanges
    return list(Episode(number, seed, addresses, barrier, ranges, is_again=True).run(only))


def _is_odd(exchanges: list[Exchange]) -> bool:
    return any(name_of(exchange, each) is None for exchange in exchanges for each in exchange.differences)


def _dialogue(number: int, seed: int, addresses: tuple[Address, Address], ranges: Ranges) -> list[Exchange]:
    """One that differs is held again; what was only a matter of time is then gone."""
    exchanges = list(Dialogue(number, seed, addresses, ranges).run())
    if not _is_odd(exchanges):
        return exchanges
    return list(Dialogue(number, seed, addresses, ranges, is_again=True).run())


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--exchanges", type=int, default=5000, help="requests that both get (5000)")
    parser.add_argument("--seed", type=int, default=None, help="of what is drawn")
    parser.add_argument("--episode", type=int, help="this episode alone")
    parser.add_argument("--api", type=int, action="append", help="draw this API key only; may be repeated")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
    return options


if __name__ == "__main__":
    sys.exit(main())

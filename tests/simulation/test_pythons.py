"""The comparison of two Pythons: what it takes for the same, and what for another story."""

import sys

from tests.simulation.pythons import differing, hashes_of, run

PRINTED = "seed 1 aa\nseed 2 FAILED after 7 steps, 9 ms:\nseed 2 bb\nbroker: 1 of 2 seeds passed\n"


def test_hashes_are_read_of_all_seeds() -> None:
    assert hashes_of(PRINTED) == {1: "aa", 2: "bb"}


def test_seeds_that_differ_or_are_missing_are_found() -> None:
    assert differing({1: "aa", 2: "bb", 3: "cc"}, {1: "aa", 2: "other"}) == [2, 3]


def test_a_seed_has_one_hash_in_two_processes() -> None:
    first, second = (hashes_of(run(sys.executable, "broker", seeds=1, first=3)) for _ in range(2))

    assert list(first) == [3]
    assert differing(first, second) == []

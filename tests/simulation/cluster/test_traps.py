"""Tests the judge: seeded bugs are found, each by a seed that is known to find it (docs/seeded-bugs.md)."""

import pytest

from tests.simulation.cluster.log_traps import LOG_TRAPS
from tests.simulation.cluster.traps import TRAPS
from tests.simulation.cluster.world import ClusterWorld

FOUND_BY = {
    "T-11": 0,
    "T-14": 0,
    "T-16": 30,
    "T-17": 4,
    "T-18": 0,
    "T-20": 1,
    "T-21": 1,
    "T-22": 3,
    "T-26": 4,
    "T-28": 3,
}
LOGS_FOUND_BY = {
    "compacts latest records away": 10,
    "compacts every third record away": 17,
    "deletes records up to the log end": 0,
    "refuses batches across the log start": 18,
    "keeps a refused write in memory": 18,
    "rolls at the wrong offset": 0,
    "indexes the next offset": 10,
}
# Any change of the broker makes another story of a seed: then the next ones have to do.
OTHER_SEEDS = 60


def test_every_trap_has_a_seed():
    assert FOUND_BY.keys() == TRAPS.keys()
    assert LOGS_FOUND_BY.keys() == LOG_TRAPS.keys()


@pytest.mark.parametrize(("trap", "seed"), [*FOUND_BY.items(), *LOGS_FOUND_BY.items()])
def test_a_planted_trap_is_found(monkeypatch, trap, seed):
    (TRAPS | LOG_TRAPS)[trap](monkeypatch)
    for candidate in (seed, *range(OTHER_SEEDS)):
        if ClusterWorld(candidate).run().violations:
            return
    pytest.fail(f"{trap} goes unnoticed")

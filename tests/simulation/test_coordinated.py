"""The world of one broker with its coordinator of transactions, and bugs of transactions that it finds."""

import pytest

from tests.simulation.cluster.seeded_transaction_bugs import SEEDED_TRANSACTION_BUGS
from tests.simulation.seeded_coordinator_rules import answers_a_pair_before_the_abort
from tests.simulation.world import World

Patch = pytest.MonkeyPatch
BUGS = SEEDED_TRANSACTION_BUGS | {"answers a pair before the abort": answers_a_pair_before_the_abort}
WITH_TRANSACTIONS = 3
OTHERS = range(40)
FOUND = {
    "fences without another epoch": "I-8",
    "hides no aborted transactions": "I-21",
    "calls pending offsets stable": "I-24",
    "reads undecided records": "I-29",
    "completes before markers": "I-36",
    "sends markers before the decision": "I-36",
    "answers before the decision": "I-37",
    "asks no coordinator": "I-38",
    "answers a pair before the abort": "answers",
}
FIRST_SEEDS = {"answers a pair before the abort": 644}


def test_transactions_are_coordinated_and_judged() -> None:
    world = World(WITH_TRANSACTIONS)
    assert world.plan.transacts
    outcome = world.run()

    assert outcome.violations == []
    assert outcome.counts["transactions committed"] > 20
    assert outcome.counts["transactions aborted"] > 5
    assert outcome.counts["coordinators compared"] > 100
    assert outcome.counts["committed records read"] > 100


def test_worlds_without_transactions_know_nothing_of_them() -> None:
    seed = next(seed for seed in OTHERS if not World(seed).plan.transacts)

    assert World(seed).run().counts.get("decisions", 0) == 0


@pytest.mark.parametrize(("bug", "invariant"), FOUND.items())
def test_bug_of_transactions_is_found(monkeypatch: Patch, bug: str, invariant: str) -> None:
    BUGS[bug](monkeypatch)
    for seed in (FIRST_SEEDS.get(bug, WITH_TRANSACTIONS), *OTHERS):
        world = World(seed)
        violations = world.run().violations if world.plan.transacts else []
        if violations:
            assert violations[0].startswith(invariant)
            return
    pytest.fail(f"{bug} goes unnoticed")

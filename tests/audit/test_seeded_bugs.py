"""The audit is tested too: seeded bugs of a broker that lose, double or reorder are found, and clean runs are clean."""

import pytest

from ottla.testing.audit.findings import Blame
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.audit.seeded import FOUND
from tests.audit.workload import Workload

SEEDS_MAX = 40
STEPS = 60
CLEAN_SEEDS = 40


@pytest.mark.parametrize("name", FOUND)
def test_a_broken_broker_is_found_out(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    seed_bug, expected = FOUND[name]
    bed = Testbed(deadline=20)
    bed.start()
    try:
        seed_bug(monkeypatch)
        found: set[str] = set()
        for seed in range(SEEDS_MAX):
            found |= broker_findings(Kafka(bed), seed)
            if expected in found:
                return
        pytest.fail(f"{SEEDS_MAX} seeds found {found}, no {expected}")
    finally:
        monkeypatch.undo()
        bed.stop()


def test_clean_runs_have_no_finding_of_the_broker() -> None:
    bed = Testbed(deadline=20)
    bed.start()
    try:
        for seed in range(CLEAN_SEEDS):
            Workload(Kafka(bed), seed).run(STEPS)
            wrong = [each.lines() for each in Kafka(bed).audit() if each.kind.blame is Blame.BROKER]
            assert wrong == [], f"seed {seed}"
            bed.run(bed.reset())
    finally:
        bed.stop()


def broker_findings(kafka: Kafka, seed: int) -> set[str]:
    """The workload may end in the middle: what the broker answers or stores makes no sense to clients any more."""
    try:
        Workload(kafka, seed).run(STEPS)
    except Exception as error:
        del error
    found = {each.kind.name for each in kafka.audit() if each.kind.blame is Blame.BROKER}
    kafka.reset()
    return found

"""The audit is tested too: seeded bugs of a broker that lose, double or reorder are found, and clean runs are clean."""

import os
from collections.abc import Callable, Iterator

import pytest

from ottla.testing.audit import final_logs
from ottla.testing.audit.auditor import Auditor
from ottla.testing.audit.findings import Blame
from ottla.testing.audit.recorder import Recorder
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.audit import test_clients
from tests.audit.seeded import FOUND
from tests.audit.workload import Workload

SEEDS_MAX = 40
STEPS = 60
# `make nightly` runs a thousand; OTTLA_CLEAN_SEEDS is another number of them.
CLEAN_SEEDS = int(os.environ.get("OTTLA_CLEAN_SEEDS") or (1000 if "OTTLA_SUITE" in os.environ else 40))


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


@pytest.mark.timeout(3600)
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


# KT-16: what something has deleted is taken for lost.


@pytest.fixture
def handle() -> Iterator[Kafka]:
    bed = Testbed(deadline=20, settings={"log.retention.check.interval.ms": 50})
    bed.start()
    yield Kafka(bed)
    bed.stop()


def forgets_retention(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(final_logs, "_expires_before_ms", lambda *_: 0)
    patch.setattr(Auditor, "_expired_bytes", lambda auditor: auditor._expired_bytes_before)


def forgets_compaction(patch: pytest.MonkeyPatch) -> None:
    real = final_logs.FinalLog
    patch.setattr(final_logs, "FinalLog", lambda **fields: real(**(fields | {"is_compacted": False})))


def forgets_deletions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recorder, "note_deletion", lambda *_: None)


@pytest.mark.parametrize(
    ("bug", "found_by"),
    [
        (forgets_retention, test_clients.test_retention_loses_nothing),
        (forgets_compaction, test_clients.test_compaction_loses_nothing),
        (forgets_deletions, test_clients.test_deleted_topics_and_records_are_not_lost),
    ],
)
def test_an_audit_that_takes_deletions_for_losses_is_found(
    monkeypatch: pytest.MonkeyPatch,
    handle: Kafka,
    bug: Callable[[pytest.MonkeyPatch], None],
    found_by: Callable[[Kafka], None],
) -> None:
    found_by(handle)
    handle.reset()
    bug(monkeypatch)

    with pytest.raises(AssertionError, match="acknowledged"):
        found_by(handle)

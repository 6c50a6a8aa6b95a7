"""What the cluster world does to logs: compaction, deletion of records, configs that change in flight."""

import pytest

from ottla.broker.upkeep.log_cleaner import Cleaner
from ottla.storage import compaction
from ottla.storage.log import Log
from tests.simulation.cluster.world import ClusterWorld


def seed_with(**wanted):
    """The first seed whose plan is as wanted."""
    return next(
        seed
        for seed in range(1_000)
        if all(getattr(ClusterWorld(seed).plan, name) == value for name, value in wanted.items())
    )


def test_a_world_that_compacts_finds_nothing_wrong(monkeypatch):
    compacted = []
    log_success = Cleaner._log_success

    def note(cleaner, *arguments):
        compacted.append(arguments)
        return log_success(cleaner, *arguments)

    monkeypatch.setattr(Cleaner, "_log_success", note)
    outcome = ClusterWorld(seed_with(compacts=True)).run()

    assert outcome.violations == []
    assert compacted


def test_a_compaction_that_loses_keys_is_found(monkeypatch):
    monkeypatch.setattr(compaction._Cleaner, "_stays", lambda *_: False)
    seed = seed_with(compacts=True)

    assert ClusterWorld(seed).run().violations


@pytest.mark.parametrize("kind", ["delete records", "configure"])
def test_operations_on_logs_are_part_of_some_seeds(kind):
    seed = next(seed for seed in range(100) if kind in ClusterWorld(seed).plan.faults)
    assert ClusterWorld(seed).run().violations == []


def test_logs_that_do_not_start_at_0_are_compared(monkeypatch):
    starts = []
    delete = Log.delete_records_before

    def note(log, offset):
        delete(log, offset)
        starts.append(log.log_start_offset)

    monkeypatch.setattr(Log, "delete_records_before", note)
    outcome = ClusterWorld(seed_with(retention_bytes=2_000)).run()

    assert outcome.violations == []
    assert max(starts, default=0) > 0

"""What only some cluster worlds have: compaction, deleted records, configs that change in flight, other clients."""

from itertools import islice

import pytest

from ottla.broker.upkeep.log_cleaner import Cleaner
from ottla.cluster import updates
from ottla.storage import compaction
from ottla.storage.log import Log
from tests.simulation.cluster.world import ClusterWorld

# Not every world writes so much that a compaction finds something to do.
SEEDS_TRIED = 12
# Worlds from here on are short.
FIRST_SEED = 22


def seeds_with(**wanted):
    """The seeds whose plan is as wanted, the first of them first."""
    return (
        seed
        for seed in range(FIRST_SEED, 1_000)
        if all(getattr(ClusterWorld(seed).plan, name) == value for name, value in wanted.items())
    )


def seed_with(**wanted):
    return next(seeds_with(**wanted))


def test_a_world_that_compacts_finds_nothing_wrong(monkeypatch):
    compacted = []
    log_success = Cleaner._log_success

    def note(cleaner, *arguments):
        compacted.append(arguments)
        return log_success(cleaner, *arguments)

    monkeypatch.setattr(Cleaner, "_log_success", note)
    for seed in islice(seeds_with(compacts=True), SEEDS_TRIED):
        assert ClusterWorld(seed).run().violations == []
        if compacted:
            return
    pytest.fail("no world has compacted anything")


def test_a_compaction_that_loses_keys_is_found(monkeypatch):
    monkeypatch.setattr(compaction._Cleaner, "_stays", lambda *_: False)
    seeds = islice(seeds_with(compacts=True), SEEDS_TRIED)

    assert any(ClusterWorld(seed).run().violations for seed in seeds)


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


@pytest.mark.parametrize(
    ("wanted", "counted"),
    [
        pytest.param(
            {"has_small_epochs": True, "deletes_transactions": True},
            {"producer ids replaced", "committed records read"},
            id="epochs-that-are-used-up",
        ),
        pytest.param(
            {"expires_transactional_ids": True, "has_small_epochs": False, "deletes_transactions": False},
            {"producer ids replaced"},
            id="ids-that-expire",
        ),
        pytest.param(
            {"transacts": True, "compacts": True, "produce_every_ms": 1_000},
            {"offsets of transactions"},
            id="transactions-compacted",
        ),
    ],
)
def test_transactions_of_some_worlds_meet_what_they_may(wanted, counted):
    for seed in islice(seeds_with(**wanted), SEEDS_TRIED):
        outcome = ClusterWorld(seed).run()
        assert outcome.violations == []
        if all(outcome.counts.get(name) for name in counted):
            return
    pytest.fail(f"no world has any {counted}")


def test_clients_of_some_worlds_fetch_in_sessions():
    outcomes = [ClusterWorld(seed).run() for seed in islice(seeds_with(session_slots=3), 2)]

    assert [outcome.violations for outcome in outcomes] == [[], []]
    assert any(outcome.counts.get("fetches of a session") for outcome in outcomes)


def worlds_of(kind, count):
    """The first of those in which such a thing befalls the cluster."""
    return islice((world for seed in range(400) if kind in (world := ClusterWorld(seed)).plan.faults), count)


@pytest.mark.parametrize(
    ("kind", "changed"), [("users", "_scram_credentials_after"), ("quotas", "_quotas_after")], ids=["users", "quotas"]
)
def test_a_broker_that_keeps_what_was_deleted_is_found(kind, changed, monkeypatch):
    after = getattr(updates, changed)

    def forgetful(changes):
        return {owner: kept for owner, kept in after(changes).items() if kept is not None}

    monkeypatch.setattr(updates, changed, forgetful)

    assert any(world.run().violations for world in worlds_of(kind, 3))

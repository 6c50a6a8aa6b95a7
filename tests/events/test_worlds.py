"""Simulated clusters whose brokers tell events: nothing that holds without them is lost, and a seed is one story."""

import pytest

from tests.simulation.cluster.plan import ClusterPlan
from tests.simulation.cluster.world import ClusterWorld

# One partition for three brokers, so that two of them send their events to the third. With a sample every second they
# always have something to tell, also when all clients have gone.
EVENTS = {
    "ottla.events.enable": "true",
    "ottla.events.num.partitions": "1",
    "ottla.events.sample.interval.ms": "1000",
}


@pytest.fixture(autouse=True)
def telling(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ClusterPlan.settings
    monkeypatch.setattr(ClusterPlan, "settings", lambda plan: settings(plan) | EVENTS)


# In the last two an event is on its way at the moment at which nothing of a client may be left.
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 48, 106])
def test_the_invariants_hold_while_events_are_published(seed: int) -> None:
    world = ClusterWorld(seed)

    assert world.run().violations == []
    assert "ottla.events" in world.truth.image.topics


def test_a_seed_has_one_trace() -> None:
    assert ClusterWorld(3).run().digest == ClusterWorld(3).run().digest

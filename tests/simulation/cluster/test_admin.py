"""The operator of simulated clusters, whom brokers answer as a test says."""

from random import Random
from types import SimpleNamespace

import pytest

from ottla.protocol.errors import ErrorCode
from tests.simulation.calm import Calm
from tests.simulation.cluster.admin import BROKER_THROTTLES, Admin
from tests.simulation.cluster.client import Client
from tests.simulation.cluster.world import ClusterWorld
from tests.simulation.loop import SimulationLoop


@pytest.fixture
def loop():
    loop = SimulationLoop()
    yield loop
    loop.close()


def test_throttles_are_raised_as_soon_as_a_broker_does_it(loop, monkeypatch):
    answers = [None, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]
    asked = []

    async def answer(client, request, version):
        asked.append(request)
        error = answers[len(asked) - 1]
        return None if error is None else SimpleNamespace(responses=[SimpleNamespace(error_code=error)])

    monkeypatch.setattr(Client, "ask", answer)
    plan = SimpleNamespace(uses_topic_ids=False)
    world = SimpleNamespace(make_rng=Random, sleep_ms=Calm().sleep_ms, topics=[], plan=plan)

    loop.run_until_complete(Admin(world, Random(0)).raise_throttles())

    (resource,) = asked[-1].resources
    assert {config.name: config.value for config in resource.configs} == dict.fromkeys(BROKER_THROTTLES, "40000")
    assert len(asked) == len(answers)


@pytest.mark.parametrize(
    ("replicas", "unwell", "may"),
    [
        pytest.param([2, 1], {1}, False, id="all-that-stay-have-lost-it-or-never-had-it"),
        pytest.param(None, {1}, False, id="called-off"),
        pytest.param([3, 2], {1}, True, id="another-has-it"),
        pytest.param([2, 1], set(), True, id="power-was-not-lost"),
        pytest.param([2, 1], {1, 3}, True, id="no-replica-has-it"),
    ],
)
def test_records_are_not_left_to_brokers_that_lost_power(replicas, unwell, may):
    state = SimpleNamespace(replicas=(3, 2, 1), adding=(3,), isr=(1, 3), elr=())
    nodes = {node_id: SimpleNamespace(is_unwell=node_id in unwell) for node_id in state.replicas}
    world = SimpleNamespace(truth=SimpleNamespace(partition=lambda *_: state), nodes=nodes)

    assert ClusterWorld.may_be_left_to(world, ("beta", 0), replicas) is may
